"""Defines the options of the backbone."""

import contextlib

from plsc_tf.flags.checks import read_pairs
from plsc_tf.flags.option import Amount, OptionGroup, Positive, option


def read_model_options(name: str, text: str) -> dict:
    """Returns `model_options` as a dict of bool, int, float, tuple or str.

    Args:
        name: the option's name for error messages.
        text: the option's value.

    Raises:
        ValueError: an item is not key=value, or a key occurs twice.
    """
    items = list(filter(None, map(str.strip, text.split(","))))
    form = "key=value pairs separated by commas, lists with dashes (depths=1-1-1-1)"
    return read_pairs(name, items, "=", form, _read_value)


def _read_value(key, text):
    """Converts '3', '0.5', 'true', '1-2-2' or a word to a value."""
    if not key.isidentifier():
        raise ValueError(key)
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
        with contextlib.suppress(ValueError):
            return tuple(map(kind, text.split("-")))
    return {"true": True, "false": False}.get(text.lower(), text)


class Model(OptionGroup):
    """Options of the backbone."""

    model_name: str = option(
        "ResNet50", "a backbone, or the dotted path of your own (PLSC; FastNN)"
    )
    emb_size: Positive | None = option(
        None,
        "embedding size; None: 512, or a classic network's own, see docs/zoo.md (PLSC)",
        aliases="emb_dim embedding_size",
    )
    dropout: float | None = option(
        None, "dropout before the embedding; None: the backbone's", within="[0, 1)"
    )
    aux_logits_weight: Amount = option(
        0.4, "weight of the auxiliary logits' loss", applies="auxiliary_logits"
    )
    freeze_layers: str = option(
        "", "regular expression for the beginning of the names of layers to freeze"
    )
    synchronized_batch_norm: bool = option(
        False, "use statistics of all replicas", applies="several_replicas"
    )
    model_options: str = option(
        "", "the backbone's arguments: width=32,depths=1-1", check=read_model_options
    )
