"""The points of the matrix of heads: options, inputs, and the oracle's steps."""

import dataclasses

import keras
import numpy as np

import plsc_tf
from plsc_tf.heads.adaptive_margins import ADAFACE, CURRICULARFACE, MAGFACE
from plsc_tf.heads.margins import SPHEREFACE, InterclassFilter, Margins
from plsc_tf.parallel.rows import RowSplit
from plsc_tf.training.optimizers import Lars
from tests.heads import oracle

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
}
for _name in ("softmax", "arcface", "curricularface"):
    _pair = ({**given, "label_smoothing": 0.25} for given in LOSSES[_name])
    LOSSES[f"smoothed_{_name}"] = tuple(_pair)
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
LARS = {"momentum": 0.75, "coefficient": 0.5}
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
    # Its rule looks at whole weights, which shards must act as.
    "lars": (lambda: Lars(RATE, **LARS, l2=0.0625), "lars", LARS | {"decay": 0.0625}),
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
    parts = [p if p.dtype == int else p.astype(dtype).astype("float64") for p in parts]
    return Example(*parts)


def update(optimizer, weights, gradients, slots, step):
    """`oracle.update` for one of `OPTIMIZERS`, over dicts of arrays."""
    _, rule, given = OPTIMIZERS[optimizer]
    names, bound = list(weights), BOUND if "clipnorm" in optimizer else None
    groups = [[name] for name in names] if optimizer == "clipnorm" else [names]
    moved, kept = {}, {}
    for group in groups:
        chosen = [gradients[name] for name in group]
        if bound:  # or the case would not show whether it is clipped
            assert sum((g**2).sum() for g in chosen) > bound**2
        new, new_slots = oracle.update(
            rule,
            [weights[name] for name in group],
            chosen,
            [slots.get(name, {}) for name in group],
            rate=RATE,
            step=step,
            clip_norm=bound,
            **given,
        )
        moved |= dict(zip(group, new, strict=True))
        kept |= dict(zip(group, new_slots, strict=True))
    return moved, kept


class Expected:
    """The same by the oracle: dense, unsharded, float64."""

    def __init__(self, case, example):
        self.case = case
        self.weights = {"kernel": example.kernel, "weight": example.weight}
        if "softmax" in case.loss:
            self.weights["bias"] = example.bias
        self.slots = {name: {} for name in self.weights}
        self.state = None
        self.steps = 0

    def step(self, inputs, labels, example_weights, sampled=None):
        """Moves everything by one step; returns what `Stepper.step` does."""
        found = self.gradients(inputs, labels, example_weights, sampled)
        self.apply(found.pop("by"), sampled)
        return found

    def gradients(self, inputs, labels, example_weights, sampled=None):
        """What `step` returns and `by`, the gradients of all weights."""
        embeddings = inputs @ self.weights["kernel"]
        ranks = self.ranks(embeddings, labels, sampled)
        found = oracle.head_step(
            self.weights["weight"],
            self.weights.get("bias"),
            embeddings,
            labels,
            example_weights,
            scale=self.case.scale,
            state=self.state,
            sampled=sampled,
            **LOSSES[self.case.loss][1],
        )
        self.state = found["state"]
        return {
            "losses": found["losses"],
            "gradients": found["embedding_gradients"],
            "ranks": ranks,
            "by": {
                "kernel": inputs.T @ found["embedding_gradients"],
                "weight": found["weight_gradients"],
                "bias": found["bias_gradients"],
            },
        }

    def step_in_parts(self, batch, parts, sampled=None):
        """Moves everything by one step, whose parts follow each other.

        Args:
            batch: (inputs, labels, example weights).
            parts: lists of the batch's examples.
            sampled: as of `step`.

        Returns:
            dict of the `loss`, Σ weight · loss / number of examples, and `accuracy`.
        """
        total, loss, correct, by = len(batch[2]), 0.0, 0.0, {}
        for part in parts:
            own = [value[part] for value in batch]
            found = self.gradients(*own, sampled)
            share = own[2].sum() / total
            loss += (own[2] * found["losses"]).sum() / total
            correct += (found["ranks"] == 0).sum() / total
            for name in self.weights:
                by[name] = by.get(name, 0.0) + share * found["by"][name]
        self.apply(by, sampled)
        return {"loss": loss, "accuracy": correct}

    def ranks(self, embeddings, labels, sampled):
        """How many of the classes that take part score above the true one."""
        weight = self.weights["weight"]
        if "bias" in self.weights:
            scores = embeddings @ weight.T + self.weights["bias"]
        else:
            unit = weight / np.linalg.norm(weight, axis=-1, keepdims=True)
            scores = np.tensordot(embeddings, unit, [[1], [-1]])
            scores = scores.max(axis=2) if scores.ndim == 3 else scores
        above = scores > scores[np.arange(len(labels)), labels][:, None]
        return above[:, slice(None) if sampled is None else sampled].sum(axis=1)

    def apply(self, gradients, sampled=None):
        """The update; of classes that are not sampled nothing changes."""
        self.steps += 1
        own = slice(None) if sampled is None else sampled
        rows = {"kernel": slice(None), "weight": own, "bias": own}
        moved, kept = update(
            self.case.optimizer,
            {name: value[rows[name]] for name, value in self.weights.items()},
            {name: gradients[name][rows[name]] for name in self.weights},
            {
                name: {s: value[rows[name]] for s, value in slots.items()}
                for name, slots in self.slots.items()
            },
            self.steps,
        )
        for name, value in moved.items():
            self.weights[name] = self.weights[name].copy()
            self.weights[name][rows[name]] = value
            for slot, new in kept[name].items():
                whole = self.slots[name].get(slot, np.zeros_like(self.weights[name]))
                whole[rows[name]] = new
                self.slots[name][slot] = whole

    def whole_slots(self):
        """`{"weight/velocity": array}`, as of `Stepper.slots`."""
        return {
            f"{name}/{slot}": value
            for name, held in self.slots.items()
            for slot, value in held.items()
        }


def close(actual, expected, tolerance):
    """Asserts it, relative to the largest number."""
    bound = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)
