"""The points of the matrix of heads: what is chosen, and what goes in."""

import dataclasses

import keras
import numpy as np

import plsc_tf
from plsc_tf.heads.adaptive_margins import ADAFACE, CURRICULARFACE, MAGFACE
from plsc_tf.heads.margins import SPHEREFACE, InterclassFilter, Margins
from plsc_tf.parallel.rows import RowSplit
from plsc_tf.training.optimizers import Lars

EMBEDDING, BATCH, FEATURES, STEPS = 5, 12, 7, 2
# (margins and other options of the head, arguments of the oracle).
LOSSES = {
    "softmax": ({"loss": plsc_tf.SOFTMAX}, {"loss": "softmax"}),
    "arcface": ({"loss": plsc_tf.ARCFACE}, {"loss": "arcface"}),
    "straight_through": (
        {"loss": Margins(m2=0.5, gradient="straight_through")},
        {"loss": "arcface", "straight_through": True},
    ),
    "cosface": ({"loss": plsc_tf.COSFACE}, {"loss": "cosface"}),
    "sphereface": ({"loss": SPHEREFACE}, {"loss": "sphereface"}),
    "combined": (
        {"loss": Margins(0.9, 0.4, 0.15)},
        {"loss": "combined", "m1": 0.9, "m2": 0.4, "m3": 0.15},
    ),
    "adaface": ({"loss": ADAFACE}, {"loss": "adaface"}),
    "curricularface": ({"loss": CURRICULARFACE}, {"loss": "curricularface"}),
    "magface": ({"loss": MAGFACE}, {"loss": "magface"}),
    "filtered": (
        {"loss": InterclassFilter(plsc_tf.ARCFACE, 0.3)},
        {"loss": "arcface", "interclass_filter": 0.3},
    ),
    "filtered_curricularface": (
        {"loss": InterclassFilter(CURRICULARFACE, 0.3)},
        {"loss": "curricularface", "interclass_filter": 0.3},
    ),
    "smoothed_softmax": (
        {"loss": plsc_tf.SOFTMAX, "label_smoothing": 0.25},
        {"loss": "softmax", "label_smoothing": 0.25},
    ),
    "smoothed_arcface": (
        {"loss": plsc_tf.ARCFACE, "label_smoothing": 0.25},
        {"loss": "arcface", "label_smoothing": 0.25},
    ),
    "smoothed_curricularface": (
        {"loss": CURRICULARFACE, "label_smoothing": 0.25},
        {"loss": "curricularface", "label_smoothing": 0.25},
    ),
}
# Refused under Partial FC.
SMOOTHED = [loss for loss in LOSSES if loss.startswith("smoothed")]
# Lengths of the embeddings: MagFace's range with both ends, around AdaFace's mean.
LENGTHS = {"magface": (5, 130), "adaface": (1, 120)}
# Whether there are tiles, and how many of a tile's products `[tile, batch]` are kept.
TILINGS = {
    "kept": (True, 1000),
    "recomputed": (True, 0),
    "partly": (True, 1.5),
    "untiled": (False, 1000),
}
# (classes, sample_rate, rows of a tile): every class; 12 to 50 of 113, known while
# tracing; the true classes and at most three more, known when the step runs; and
# large enough for XLA to compile. 37 and 113 divide by no number of replicas and no
# tile, and leave some replicas a tile of one class that others do not have.
SAMPLINGS = {"all": (37, 1.0, 6), "sampled": (113, 0.45, 12), "positives": (37, 0.1, 1)}
LARGE = {"large": (4111, 1.0, None), "large_sampled": (8233, 0.5, None)}
# Keras takes its settings through float32: powers of two pass unchanged.
RATE, BOUND = 2.0**-5, 2.0**-6
MOMENTUM = {"momentum": 0.75, "l2": 0.0625}
NESTEROV = {"momentum": 0.75, "nesterov": True}
ADAM = {"beta_1": 0.875, "beta_2": 0.96875, "epsilon": 2.0**-10}
ADAMW = ADAM | {"weight_decay": 0.25}
# (optimizer, rule of the oracle, its arguments).
OPTIMIZERS = {
    "momentum": (lambda: plsc_tf.Momentum(RATE, **MOMENTUM), "plsc_momentum", MOMENTUM),
    "nesterov": (lambda: keras.optimizers.SGD(RATE, **NESTEROV), "sgd", NESTEROV),
    "adam": (lambda: keras.optimizers.Adam(RATE, **ADAM), "adam", ADAM),
    "adamw": (lambda: keras.optimizers.AdamW(RATE, **ADAMW), "adamw", ADAMW),
    "global_clipnorm": (
        lambda: plsc_tf.Momentum(RATE, **MOMENTUM, global_clipnorm=BOUND),
        "plsc_momentum",
        MOMENTUM,
    ),
    "clipnorm": (
        lambda: keras.optimizers.SGD(RATE, 0.75, clipnorm=BOUND),
        "sgd",
        {"momentum": 0.75},
    ),
}
# Rules that look at whole weights, which shards must act as.
LARS = {"momentum": 0.75, "coefficient": 0.5}
LAYER_WISE = {
    "lars": (lambda: Lars(RATE, **LARS, l2=0.0625), "lars", LARS | {"decay": 0.0625})
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One point of the matrix; `dense` for the head that is whole on every replica."""

    loss: str = "arcface"
    replicas: int = 2
    tiling: str = "kept"
    sampling: str = "all"
    optimizer: str = "momentum"
    dense: bool = False
    ranks: bool = False
    scale: float = 16.0
    sub_centers: int = 1

    def __str__(self):
        names = [self.loss, str(self.replicas), self.tiling, self.sampling]
        names += ["dense"] if self.dense else []
        names += [f"scale{self.scale:g}"] if self.scale != 16 else []
        names += [f"{self.sub_centers}centers"] if self.sub_centers > 1 else []
        return "-".join([*names, self.optimizer])


@dataclasses.dataclass
class Example:
    """What goes into a case, float64; batches are `[STEPS, BATCH, …]`."""

    kernel: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    inputs: np.ndarray
    labels: np.ndarray
    example_weights: np.ndarray

    def batches(self):
        """Yields (inputs, labels, example weights) of every step."""
        yield from zip(self.inputs, self.labels, self.example_weights, strict=True)


def make_labels(classes):
    """`[STEPS, BATCH]`, first and last labels of shards among them.

    In the first step the last of four replicas has none.
    """
    firsts = {RowSplit(classes, n).first(s) for n in (2, 3, 4) for s in range(1, n)}
    *others, last = sorted(firsts)
    first = [0, 0, last - 1, *others, *(label - 1 for label in others)]
    second = [classes - 1, classes - 1, last, last - 1, 3, 3, 3, *others]
    return np.array([np.resize(first, BATCH), np.resize(second, BATCH)])


def make_example(case):
    classes, *_ = (SAMPLINGS | LARGE)[case.sampling]
    rng = np.random.default_rng(1)
    kernel = rng.normal(size=(FEATURES, EMBEDDING))
    inputs = rng.normal(size=(STEPS, BATCH, FEATURES))
    lengths = rng.uniform(*LENGTHS.get(case.loss, (0.5, 2)), size=(STEPS, BATCH, 1))
    inputs *= lengths / np.linalg.norm(inputs @ kernel, axis=2, keepdims=True)
    example_weights = rng.uniform(0.5, 2, (STEPS, BATCH))
    example_weights[:, 4] = 0  # padding
    centers = () if case.sub_centers == 1 else (case.sub_centers,)
    weight = rng.normal(size=(classes, *centers, EMBEDDING))
    parts = [kernel, weight, rng.normal(size=classes)]
    parts += [inputs, make_labels(classes), example_weights]
    dtype = keras.config.floatx()
    return Example(
        *(p if p.dtype == int else p.astype(dtype).astype("float64") for p in parts)
    )
