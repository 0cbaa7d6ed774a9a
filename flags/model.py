"""The backbone, and how long and in which batches it is trained."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Model(OptionGroup):
    """The backbone and its training."""

    model_name: str = option(
        "ResNet50",
        "backbone by name, or a dotted path to your own (PLSC model_name; FastNN "
        "model_name, inception_resnet_v2)",
    )
    emb_size: int | None = option(
        None,
        "length of an embedding; None: 512, but for the classic networks, which give "
        "their own features then, without an embedding layer (PLSC emb_size, 512)",
        lower=1,
        aliases=("emb_dim", "embedding_size"),
    )
    dropout: float | None = option(
        None,
        "share of the features dropped before the embedding layer; None: the "
        "backbone's own (PLSC's ResNet: 0.4)",
        lower=0,
        upper=1,
        open_ends="upper",
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
        "layers whose weights stay as they are: a regular expression that matches the "
        "beginning of their names; empty: none",
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
    )

    def __post_init__(self):
        super().__post_init__()
        self.backbone_options()

    def backbone_options(self):
        """Returns `model_options` as a dict of bool, int, float, tuple or str.

        Raises:
            ValueError: an item that is not key=value, or a key given twice.
        """
        options = {}
        for item in filter(None, map(str.strip, self.model_options.split(","))):
            key, equals, value = (part.strip() for part in item.partition("="))
            if not equals or not key.isidentifier() or key in options:
                raise ValueError(
                    "model_options must be key=value separated by commas, each key "
                    "once, lists with dashes (depths=1-1-1-1). Received: "
                    f"model_options={self.model_options!r}, at '{item}'."
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
