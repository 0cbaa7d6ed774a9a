"""The backbone."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


def read_model_options(name: str, text: str) -> dict:
    """Returns `model_options` as a dict of bool, int, float, tuple or str.

    Args:
        name: of the option, for errors.
        text: its value.

    Raises:
        ValueError: an item that is not key=value, or a key given twice.
    """
    options = {}
    for item in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key.isidentifier() or key in options:
            raise ValueError(
                f"{name} must be key=value separated by commas, each key once, lists "
                f"with dashes (depths=1-1-1-1). Received: {name}={text!r}, at '{item}'."
            )
        options[key] = _read_value(value)
    return options


def _read_value(text):
    """Reads '3', '0.5', 'true', '1-2-2' or a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float, _read_numbers):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _read_numbers(text):
    parts = text.split("-")
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        return tuple(float(part) for part in parts)


@dataclasses.dataclass(frozen=True)
class Model(OptionGroup):
    """The backbone."""

    model_name: str = option(
        "ResNet50",
        "backbone by name, or a dotted path to your own (PLSC model_name; FastNN "
        "model_name, inception_resnet_v2)",
    )
    emb_size: int | None = option(
        None,
        "length of an embedding; None: 512, except for the classic networks, which "
        "then give their own features without an embedding layer (PLSC emb_size, 512)",
        lower=1,
        aliases=("emb_dim", "embedding_size"),
    )
    dropout: float | None = option(
        None,
        "share of the features dropped before the embedding layer; None: the "
        "backbone's own (PLSC's ResNet: 0.4)",
        within="[0, 1)",
    )
    aux_logits_weight: float = option(
        0.4,
        "factor of the loss of auxiliary logits, for the classic networks that have "
        "them; 0: none (FastNN: 0.4)",
        lower=0,
        applies="auxiliary_logits",
    )
    freeze_layers: str = option(
        "",
        "layers to freeze: a regular expression that matches the beginning of their "
        "names; empty: none",
    )
    synchronized_batch_norm: bool = option(
        False,
        "batch statistics over all replicas instead of each replica's own",
        applies="several_replicas",
    )
    model_options: str = option(
        "",
        "more arguments of the backbone's builder, as key=value separated by commas; "
        "a list of numbers has dashes: width=32,depths=1-1-1-1",
        check=read_model_options,
    )

    def backbone_options(self) -> dict:
        """Returns `model_options` as a dict of bool, int, float, tuple or str."""
        return read_model_options("model_options", self.model_options)
