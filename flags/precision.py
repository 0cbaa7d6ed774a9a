"""Defines the options for half precision, loss scaling, and NaN or infinity."""

from plsc_tf.flags.checks import read_pairs
from plsc_tf.flags.option import Amount, OptionGroup, Positive, option, option_if

LISTS = ("white", "black")
# A condition, see `plsc_tf.flags.conditions`.
_DYNAMIC = "use_fp16 and use_dynamic_loss_scaling and loss_scale=0.0,1.0"
_half = option_if("use_fp16 or use_bf16")
_dynamic = option_if(_DYNAMIC)


def read_layer_lists(name: str, text: str) -> dict[str, tuple[str, ...]]:
    """Returns `amp_lists` as `{"white": names, "black": names}`.

    Args:
        name: the option's name for error messages.
        text: the option's value.

    Raises:
        ValueError: the text has the wrong format.
    """
    items = list(filter(None, map(str.strip, text.split(";"))))
    form = "like white:Conv2D,Dense;black:PReLU, with names of layers or classes"
    return {**dict.fromkeys(LISTS, ()), **read_pairs(name, items, ":", form, _layers)}


def _layers(kind, names):
    layers = tuple(layer.strip() for layer in names.split(","))
    if kind not in LISTS or not all(layers):
        raise ValueError(names)
    return layers


class Precision(OptionGroup):
    """Options for half precision (PLSC's set_mixed_precision), and NaN or infinity."""

    use_fp16: bool = option(
        False, "train the backbone in float16 (PLSC; FastNN)", aliases="fp16"
    )
    use_bf16: bool = option(False, "train the backbone in bfloat16", aliases="bf16")
    amp_level: str | None = option(
        None, "O0: float32; others: as use_fp16 (MindSpore)", choices="o0 o1 o2 o3"
    )
    keep_batchnorm_fp32: bool = _half(
        False, "batch normalization outputs float32 too (MindSpore)"
    )
    amp_lists: str = _half(
        "",
        "layers or classes to compute in half precision (white) or in float32 (black): "
        "white:embedding_dense;black:PReLU,stem_conv (PLSC)",
        check=read_layer_lists,
    )
    init_loss_scaling: float = option(
        1.0, "initial loss scale (PLSC)", lower=1, applies="use_fp16"
    )
    use_dynamic_loss_scaling: bool = option(
        True, "adjust the loss scale (PLSC)", applies="use_fp16 and loss_scale=0.0,1.0"
    )
    incr_every_n_steps: Positive = _dynamic(
        2000, "finite steps in a row before the loss scale grows (PLSC)"
    )
    decr_every_n_nan_or_inf: Positive = _dynamic(
        2, "steps with NaN or infinity in a row before it shrinks (PLSC)"
    )
    incr_ratio: float = _dynamic(
        2.0, "factor by which it grows (PLSC)", within="(1, inf)"
    )
    decr_ratio: float = _dynamic(
        0.5, "factor by which it shrinks, down to 1 (PLSC)", within="(0, 1)"
    )
    loss_scale: Amount = option(
        1.0, "fixed loss scale; 0 or 1: none (FastNN)", applies="use_fp16"
    )
    on_nonfinite: str = option(
        "stop",
        "if a loss or gradient is NaN or infinite: stop, rollback to the last "
        "checkpoint and leave the batch out, or skip the batch",
        choices="stop rollback skip",
    )

    REFUSED = {
        "amp_level=o0 and use_fp16 or amp_level=o0 and use_bf16": "amp_level=O0 is "
        "float32: leave use_fp16 and use_bf16 out.",
        "use_fp16 and use_bf16": "Set use_fp16 or use_bf16, not both.",
        "loss_scale>0 and loss_scale<1": "loss_scale must be 0 or at least 1.",
        "loss_scale>1 and init_loss_scaling>1": "Set loss_scale (fixed) or "
        "init_loss_scaling (dynamic), not both.",
    }

    @property
    def dtype(self) -> str:
        """The backbone's compute type: float32, float16 or bfloat16."""
        if self.use_fp16:
            return "float16"
        return "bfloat16" if self.use_bf16 else "float32"
