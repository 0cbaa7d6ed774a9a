"""Defines the options of the classification head."""

import math

from plsc_tf import initializers
from plsc_tf.flags import checks
from plsc_tf.flags.conditions import name_in
from plsc_tf.flags.option import Amount, Count, OptionGroup, Positive, option, option_if
from plsc_tf.requirements import prefix_errors

# {loss: {its option: the fields of the loss that it sets}}; see heads/margins.py.
_GRADIENT = {"margin_gradient": "gradient"}
_RANGES = {"magface_norms": "l_a u_a", "magface_margins": "l_m u_m"}
FIELDS: dict[str, dict[str, str]] = {
    "softmax": {},
    "arcface": {"margin1": "m1", "margin": "m2", "margin3": "m3", **_GRADIENT},
    "cosface": {"margin3": "m3", **_GRADIENT},
    "sphereface": {"margin1": "m1", **_GRADIENT},
    "adaface": {"margin": "m", "adaface_h": "h", "adaface_t_alpha": "t_alpha"},
    "curricularface": {"margin": "m"},
    "magface": {**_RANGES, "magface_lambda_g": "lambda_g"},
}
_sharded = option_if("loss_type=dist_*")
_cosines = option_if("no loss_type=softmax")
_adaface = option_if("loss_type=adaface")
_magface = option_if("loss_type=magface")
# The losses that use each margin.
_LOSSES_OF = {
    margin: ",".join(loss for loss, fields in FIELDS.items() if margin in fields)
    for margin in ("margin1", "margin", "margin3")
}


def _margin(name):
    """Returns `option` for a margin of these losses."""
    return option_if(f"loss_type={_LOSSES_OF[name]}", None)


def _initializer(name, text):
    with prefix_errors(name):
        text and initializers.distribution(text, 1, 1)


class Head(OptionGroup):
    """Options for the head's loss, margins, sharding, sampling and precision."""

    loss_type: str = option(
        "dist_arcface",
        f"{', '.join(FIELDS)}, or your own plsc_tf.MarginLoss; "
        "dist_ splits the classes over replicas (PLSC)",
        choices=" ".join([*FIELDS, *(f"dist_{loss}" for loss in FIELDS)]),
        dotted=True,
    )
    margin: float | None = _margin("margin")(
        "angle to add for the true class, in radians; None: the loss's default (PLSC)",
        within=f"[0, {math.pi})",
        aliases="margin2",
    )
    scale: float = _cosines(64.0, "factor of the cosines (PLSC)", within="(0, inf)")
    margin1: float | None = _margin("margin1")(
        "factor of the true angle: cos(margin1 x angle + margin) - margin3 (PLSC)",
        within="(0, 4]",
    )
    margin3: float | None = _margin("margin3")("see margin1", within="[0, 2)")
    margin_gradient: str = option(
        "exact",
        "straight_through uses 1 as the margin's derivative (arcface_torch)",
        choices="exact straight_through",
        applies="loss_type=arcface,cosface,sphereface",
    )
    adaface_h: float = _adaface(
        0.333, "factor of the standardized norms (AdaFace h)", within="[0, 1]"
    )
    adaface_t_alpha: float = _adaface(
        0.01, "weight of a batch in the norms' statistics (AdaFace)", within="(0, 1]"
    )
    magface_norms: tuple[float, ...] = _magface(
        (10.0, 110.0),
        "norms between which the margin varies (MagFace l_a, u_a)",
        within="(0, inf)",
        check=checks.pair,
    )
    magface_margins: tuple[float, ...] = _magface(
        (0.45, 0.8),
        "margins at these norms, in radians (MagFace l_margin, u_margin)",
        within=f"[0, {math.pi / 2})",
        check=checks.pair,
    )
    magface_lambda_g: Amount = _magface(
        35.0, "factor of the penalty on short embeddings (MagFace)"
    )
    interclass_filtering_threshold: float = _cosines(
        0.0, "ignore other classes above this cosine; 0: off", within="[0, 1)"
    )
    sub_centers: Positive = option(
        1, "centers per class; the nearest counts (Sub-center ArcFace: 3)"
    )
    label_smoothing: float = option(
        0.0,
        "share of the target to spread evenly over all classes",
        within="[0, 1)",
        aliases="smooth_factor",
    )
    sample_rate: float = _sharded(
        1.0,
        "Partial FC: share of the classes in a step (arcface_torch; PLSC 0.2)",
        within="(0, 1]",
        aliases="sample_ratio",
    )
    head_tile_rows: Positive | None = _sharded(
        None, "classes to process at a time; None: to fit the caches"
    )
    head_logits_mb: Count = option(
        1024, "megabytes of logits that a replica keeps for the second pass"
    )
    head_initializer: str = option(
        "",
        "Keras initializer, such as he_normal or random_normal(stddev=0.01); empty: "
        "a normal one with stddev=sqrt(2 / (emb_size + num_classes))",
        check=_initializer,
    )
    head_initial_bias: float = option(
        0.0, "initial value of the biases", applies="loss_type=softmax"
    )
    head_learning_rate_factor: Amount = option(
        1.0, "factor of the learning rate for the head; 0 freezes it"
    )
    head_weight_decay: Amount | None = option(
        None, "weight decay of the head; None: weight_decay"
    )
    head_dtype: str = option(
        "float32",
        "type of the inputs of matrix products; sums are in float32",
        choices="float32 bfloat16 float16",
    )
    head_weight_dtype: str = _sharded(
        "float32",
        "type in which weights are stored; bfloat16 halves them, 8 bits quarter them",
        choices="float32 bfloat16 int8 float8",
    )
    head_slot_dtype: str = option(
        "float32",
        "type of the optimizer's slots; bfloat16 halves them, int8 quarters them",
        choices="float32 bfloat16 int8",
        applies="loss_type=dist_* and no optimizer=sgd",
    )
    calc_acc: bool = option(False, "compute top-1 and top-5 training accuracy (PLSC)")

    REFUSED = {
        **{
            # A margin without effect (a factor of 1, or 0) is not refused.
            f"{name} and no {name}={float(name == 'margin1')} and "
            f"no loss_type={losses},softmax": (
                f"{name} is for {losses}: leave it out, or use one of these losses."
            )
            for name, losses in _LOSSES_OF.items()
        },
        "loss_type=adaface and margin>=1": "adaface's margin is not an angle and must "
        "be below 1.",
        "margin_gradient=straight_through and "
        "no loss_type=arcface,cosface,sphereface,softmax": "margin_gradient="
        "straight_through is for arcface, cosface and sphereface, as in arcface_torch.",
        "interclass_filtering_threshold and loss_type=softmax": "interclass_filtering_"
        "threshold compares cosines, which softmax does not have: use a margin loss.",
        "sub_centers>1 and loss_type=softmax": "sub_centers chooses the nearest center "
        "by its cosine, which softmax does not have: use a margin loss.",
        "label_smoothing and sample_rate<1": "label_smoothing spreads the target over "
        "all classes, but Partial FC sees only a sample: set only one.",
        **{
            f"{term} and no loss_type=dist_*": f"{name_in(term)} needs a sharded head: "
            "put dist_ before the loss, as in loss_type=dist_arcface."
            for term in (
                "sample_rate<1",
                "head_tile_rows",
                "head_weight_dtype=bfloat16,int8,float8",
                "head_slot_dtype=bfloat16,int8",
            )
        },
    }

    @property
    def loss(self) -> str:
        """The loss type without the prefix `dist_`."""
        return self.loss_type.removeprefix("dist_")

    @property
    def sharded(self) -> bool:
        """True if the classes are sharded over the replicas."""
        return self.loss_type.startswith("dist_")

    def fields(self) -> dict:
        """Returns `{field of the loss: value}` for the options that are not None."""
        values: dict = {}
        # A user's own loss defines its fields in code.
        for name, fields in FIELDS.get(self.loss, {}).items():
            value = getattr(self, name)
            if value is not None:
                numbers = value if isinstance(value, tuple) else (value,)
                values |= zip(fields.split(), numbers, strict=True)
        return values
