"""The classification head: its loss, its share of the classes, its arithmetic."""

import dataclasses
import math

from plsc_tf import initializers
from plsc_tf.flags.option import OptionGroup, option

# Which of the three margins each loss has.
MARGINS = {
    "softmax": (),
    "arcface": ("margin1", "margin", "margin3"),
    "cosface": ("margin3",),
    "sphereface": ("margin1",),
    "adaface": ("margin",),
    "curricularface": ("margin",),
    "magface": (),
}
# With these values a margin changes nothing.
NEUTRAL = {"margin1": 1.0, "margin": 0.0, "margin3": 0.0}
COMBINED = ("arcface", "cosface", "sphereface")


@dataclasses.dataclass(frozen=True)
class Head(OptionGroup):
    """The head: which loss, which margin, whole or sharded by classes."""

    loss_type: str = option(
        "dist_arcface",
        "arcface, cosface, sphereface, adaface, curricularface, magface or softmax: "
        "each replica holds all classes; with dist_ before it, its share of them. "
        "softmax has a bias and takes no margin (PLSC loss_type). The path of a "
        "plsc_tf.MarginLoss of your own is a loss, too: my_module.MyLoss",
        choices=(*MARGINS, *(f"dist_{loss}" for loss in MARGINS)),
        dotted=True,
    )
    margin: float | None = option(
        None,
        "angle added to the true class, in radians; None: the loss's own, which is "
        "0.5 for arcface (PLSC margin) and curricularface, and 0.4 for adaface, whose "
        "m it is",
        lower=0,
        upper=math.pi,
        open_ends="upper",
        aliases=("margin2",),
        applies="loss_type=arcface,adaface,curricularface",
    )
    scale: float = option(
        64.0,
        "factor of the cosines before the softmax (PLSC scale)",
        lower=0,
        open_ends="lower",
        applies="no loss_type=softmax",
    )
    margin1: float | None = option(
        None,
        "factor of the true class's angle; None: the loss's own, 1.35 for sphereface "
        "and else 1. With loss_type=arcface all three margins combine to cos(margin1 "
        "x angle + margin) - margin3 (PLSC 0.2 set_loss_type; arcface_torch "
        "margin_list)",
        lower=0,
        upper=4,
        open_ends="lower",
        applies="loss_type=arcface,sphereface",
    )
    margin3: float | None = option(
        None,
        "subtracted from the true class's cosine; None: the loss's own, 0.35 for "
        "cosface and else 0. See margin1",
        lower=0,
        upper=2,
        open_ends="upper",
        applies="loss_type=arcface,cosface",
    )
    margin_gradient: str = option(
        "exact",
        "exact: the margin is differentiated, as in PLSC; straight_through: its "
        "derivative is taken as 1, as in arcface_torch (arcface, cosface, sphereface)",
        choices=("exact", "straight_through"),
        applies="loss_type=arcface,cosface,sphereface",
    )
    adaface_h: float = option(
        0.333,
        "adaface: how much of the spread of the embeddings' norms the margin follows "
        "(AdaFace h)",
        lower=0,
        upper=1,
        applies="loss_type=adaface",
    )
    adaface_t_alpha: float = option(
        0.01,
        "adaface: share of a batch in the running statistics of the norms (AdaFace "
        "t_alpha)",
        lower=0,
        upper=1,
        open_ends="lower",
        applies="loss_type=adaface",
    )
    magface_norms: tuple[float, ...] = option(
        (10.0, 110.0),
        "magface: smallest and largest norm that the margin follows (MagFace l_a, u_a)",
        lower=0,
        open_ends="lower",
        applies="loss_type=magface",
    )
    magface_margins: tuple[float, ...] = option(
        (0.45, 0.8),
        "magface: margins at these norms, in radians (MagFace l_margin, u_margin)",
        lower=0,
        upper=math.pi / 2,
        open_ends="upper",
        applies="loss_type=magface",
    )
    magface_lambda_g: float = option(
        35.0,
        "magface: factor of the penalty on short embeddings (MagFace lambda_g)",
        lower=0,
        applies="loss_type=magface",
    )
    interclass_filtering_threshold: float = option(
        0.0,
        "other classes with a larger cosine do not count: with noisy labels they are "
        "often the same person; 0: off (arcface_torch interclass_filtering_threshold)",
        lower=0,
        upper=1,
        open_ends="upper",
        applies="no loss_type=softmax",
    )
    sub_centers: int = option(
        1,
        "centers of each class, of which the nearest one to an image counts: wrong "
        "labels gather at the others (Sub-center ArcFace, 3 there); python -m "
        "plsc_tf.classes --drop_sub_centers then leaves the dominant ones",
        lower=1,
    )
    label_smoothing: float = option(
        0.0,
        "share of the target that is spread over all classes (MindSpore smooth_factor, "
        "0.1)",
        lower=0,
        upper=1,
        open_ends="upper",
        aliases=("smooth_factor",),
    )
    sample_rate: float = option(
        1.0,
        "Partial FC: share of a replica's classes that take part in a step, the true "
        "ones of the batch among them (arcface_torch sample_rate; PLSC 0.2 "
        "sample_ratio)",
        lower=0,
        upper=1,
        open_ends="lower",
        aliases=("sample_ratio",),
        applies="loss_type=dist_*",
    )
    head_tile_rows: int | None = option(
        None,
        "classes of a sharded head that a replica works on at a time; None: chosen by "
        "itself, to fit the processor's caches",
        lower=1,
        applies="loss_type=dist_*",
    )
    head_logits_mb: int = option(
        1024,
        "logits of a step that are kept for the second pass, in MB per replica; those "
        "beyond are computed again",
        lower=0,
    )
    head_initial_deviation: float | None = option(
        None,
        "standard deviation of the initial class weights; None: sqrt(2 / (emb_size + "
        "num_classes)), as in PLSC (PLSC set_distfc_attr; arcface_torch: 0.01)",
        lower=0,
    )
    head_initializer: str = option(
        "",
        "how the class weights begin: a Keras initializer by name, such as he_normal, "
        "glorot_uniform, truncated_normal(stddev=0.02) or constant(0.1); empty: see "
        "head_initial_deviation (PLSC set_distfc_attr)",
    )
    head_initial_bias: float = option(
        0.0,
        "initial biases of loss_type=softmax (PLSC set_distfc_attr)",
        applies="loss_type=softmax",
    )
    head_learning_rate_factor: float = option(
        1.0,
        "multiple of the learning rate for the head; 0 keeps its weights as they are "
        "(PLSC set_distfc_attr, ParamAttr learning_rate)",
        lower=0,
    )
    head_weight_decay: float | None = option(
        None,
        "weight decay of the head, in the place of weight_decay; None: the same (PLSC "
        "set_distfc_attr, ParamAttr regularizer)",
        lower=0,
    )
    head_dtype: str = option(
        "float32",
        "what the head's matrix products read; they sum in float32",
        choices=("float32", "bfloat16", "float16"),
    )
    head_slot_dtype: str = option(
        "float32",
        "what the optimizer's slots of a sharded head are stored in; bfloat16 halves "
        "them",
        choices=("float32", "bfloat16"),
        applies="loss_type=dist_*",
    )
    calc_acc: bool = option(
        False,
        "top-1 and top-5 accuracy while training; costs time and memory (PLSC "
        "set_calc_acc)",
    )

    def __post_init__(self):
        super().__post_init__()
        self._check_initial()
        self._check_margins()
        self._check_loss()
        self._check_sharding()

    @property
    def loss(self):
        """The loss without `dist_`."""
        return self.loss_type.removeprefix("dist_")

    @property
    def sharded(self):
        """Whether the classes are split over the replicas."""
        return self.loss_type.startswith("dist_")

    def given_margins(self):
        """The margins that were set and that the loss has, `{option: value}`."""
        values = {name: getattr(self, name) for name in self._margins}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def _margins(self):
        """Names of the margins that the loss has; one's own has its margins inside."""
        return MARGINS.get(self.loss, ())

    def _check_initial(self):
        if not self.head_initializer:
            return
        try:
            initializers.parse(self.head_initializer)
        except ValueError as error:
            raise ValueError(f"head_initializer: {error}") from None
        if self.head_initial_deviation is not None:
            raise ValueError(
                "head_initializer says what head_initial_deviation would: leave one "
                f"of them out. Received: head_initializer={self.head_initializer}, "
                f"head_initial_deviation={self.head_initial_deviation}."
            )

    def _check_margins(self):
        # PLSC's softmax ignores its margin, which has a default there.
        for name in () if self.loss == "softmax" else NEUTRAL:
            value = getattr(self, name)
            if name not in self._margins and value not in (None, NEUTRAL[name]):
                own = ", ".join(self._margins) or "magface_margins"
                if self.loss not in MARGINS:
                    own = "in its code"
                raise ValueError(
                    f"The margin of {self.loss} is {own}; loss_type=arcface combines "
                    f"all three. Received: loss_type={self.loss_type}, "
                    f"{name}={value}; {name}=None leaves it out."
                )
        if self.loss == "adaface" and (self.margin or 0) >= 1:
            raise ValueError(
                "adaface's margin is no angle and must be below 1. Received: "
                f"margin={self.margin}."
            )
        for name in ("magface_norms", "magface_margins"):
            pair = getattr(self, name)
            if len(pair) != 2 or pair[0] > pair[1]:
                raise ValueError(
                    f"{name} must be two numbers, the smaller one first. Received: "
                    f"{name}={','.join(map(str, pair))}."
                )
        if self.magface_norms[0] == self.magface_norms[1]:
            raise ValueError(
                "magface_norms must differ. Received: magface_norms="
                f"{','.join(map(str, self.magface_norms))}."
            )

    def _check_loss(self):
        if self.margin_gradient != "exact" and self.loss not in (*COMBINED, "softmax"):
            raise ValueError(
                "margin_gradient=straight_through is arcface_torch's way with "
                f"{', '.join(COMBINED)}. Received: loss_type={self.loss_type}."
            )
        if self.interclass_filtering_threshold and self.loss == "softmax":
            raise ValueError(
                "interclass_filtering_threshold compares cosines, which softmax does "
                f"not have: use a margin loss. Received: loss_type={self.loss_type}, "
                "interclass_filtering_threshold="
                f"{self.interclass_filtering_threshold}."
            )
        if self.sub_centers > 1 and self.loss == "softmax":
            raise ValueError(
                "sub_centers chooses the nearest center by its cosine, which softmax "
                f"does not have: use a margin loss. Received: loss_type="
                f"{self.loss_type}, sub_centers={self.sub_centers}."
            )
        if self.label_smoothing and self.sample_rate < 1:
            raise ValueError(
                "label_smoothing spreads the target over all classes, of which Partial "
                "FC sees a sample only: leave one of them out. Received: "
                f"label_smoothing={self.label_smoothing}, "
                f"sample_rate={self.sample_rate}."
            )

    def _check_sharding(self):
        if self.sharded:
            return
        default = Head.__dataclass_fields__
        for name in ("sample_rate", "head_tile_rows", "head_slot_dtype"):
            value = getattr(self, name)
            if value != default[name].default:
                raise ValueError(
                    f"{name} is for a head that is split over the replicas: use "
                    f"loss_type=dist_{self.loss}, which also works on a single one. "
                    f"Received: loss_type={self.loss_type}, {name}={value}."
                )
