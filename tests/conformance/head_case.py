"""Two steps of a head and of its update, beside what the float64 oracle makes of them.

The backbone is one matrix, so that gradients of the embeddings, a norm over backbone
and head, and moved embeddings in the second step are all there.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

import plsc_tf
from plsc_tf.heads.adaptive_margins import ADAFACE, CURRICULARFACE, MAGFACE
from plsc_tf.heads.margins import SPHEREFACE, InterclassFilter, Margins
from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import RowSplit
from plsc_tf.training.updates import Updater
from tests.heads import oracle

EMBEDDING, BATCH, FEATURES, STEPS = 5, 12, 7, 2
# (margins and other options of the head, arguments of the oracle).
LOSSES = {
    "softmax": ({"margins": plsc_tf.SOFTMAX}, {"loss": "softmax"}),
    "arcface": ({"margins": plsc_tf.ARCFACE}, {"loss": "arcface"}),
    "straight_through": (
        {"margins": Margins(m2=0.5, gradient="straight_through")},
        {"loss": "arcface", "straight_through": True},
    ),
    "cosface": ({"margins": plsc_tf.COSFACE}, {"loss": "cosface"}),
    "sphereface": ({"margins": SPHEREFACE}, {"loss": "sphereface"}),
    "combined": (
        {"margins": Margins(0.9, 0.4, 0.15)},
        {"loss": "combined", "m1": 0.9, "m2": 0.4, "m3": 0.15},
    ),
    "adaface": ({"margins": ADAFACE}, {"loss": "adaface"}),
    "curricularface": ({"margins": CURRICULARFACE}, {"loss": "curricularface"}),
    "magface": ({"margins": MAGFACE}, {"loss": "magface"}),
    "filtered": (
        {"margins": InterclassFilter(plsc_tf.ARCFACE, 0.3)},
        {"loss": "arcface", "interclass_filter": 0.3},
    ),
    "filtered_curricularface": (
        {"margins": InterclassFilter(CURRICULARFACE, 0.3)},
        {"loss": "curricularface", "interclass_filter": 0.3},
    ),
    "smoothed_softmax": (
        {"margins": plsc_tf.SOFTMAX, "label_smoothing": 0.25},
        {"loss": "softmax", "label_smoothing": 0.25},
    ),
    "smoothed_arcface": (
        {"margins": plsc_tf.ARCFACE, "label_smoothing": 0.25},
        {"loss": "arcface", "label_smoothing": 0.25},
    ),
    "smoothed_curricularface": (
        {"margins": CURRICULARFACE, "label_smoothing": 0.25},
        {"loss": "curricularface", "label_smoothing": 0.25},
    ),
}
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

    def __str__(self):
        names = [self.loss, str(self.replicas), self.tiling, self.sampling]
        names += ["dense"] if self.dense else []
        names += [f"scale{self.scale:g}"] if self.scale != 16 else []
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
    parts = [kernel, rng.normal(size=(classes, EMBEDDING)), rng.normal(size=classes)]
    parts += [inputs, make_labels(classes), example_weights]
    dtype = keras.config.floatx()
    return Example(
        *(p if p.dtype == int else p.astype(dtype).astype("float64") for p in parts)
    )


class Stepper:
    """A head, the matrix before it, and their optimizer, on replicas."""

    def __init__(self, case, example, slot_dtype=None, **options):
        self.case = case
        classes, rate, tile_rows = (SAMPLINGS | LARGE)[case.sampling]
        tiled, kept = TILINGS[case.tiling]
        tile_bytes = np.dtype(keras.config.floatx()).itemsize * (tile_rows or 1) * BATCH
        settings = {"scale": case.scale, "logits_mb": kept * tile_bytes / 1e6}
        kind = plsc_tf.DenseHead
        if not case.dense:
            kind = plsc_tf.ShardedHead
            settings["sample_rate"] = rate
            settings["tile_rows"] = tile_rows if tiled else None
        settings |= LOSSES[case.loss][0] | options
        self.strategy = plsc_tf.strategy(case.replicas)
        with self.strategy.scope():
            self.kernel = keras.Variable(
                example.kernel, dtype=keras.config.floatx(), name="kernel"
            )
            self.head = kind(classes, **settings)
            self.head.build(EMBEDDING, self.strategy)
            self.optimizer = OPTIMIZERS[case.optimizer][0]()
        arrays = self.head.arrays()
        arrays["weight"].write(0, example.weight)
        if "bias" in arrays:
            arrays["bias"].write(0, example.bias)
        replicated = [self.kernel]
        if case.dense:
            replicated += self.head.variables_replicated
        self.updater = Updater(
            self.optimizer,
            self.strategy,
            replicated,
            None if case.dense else self.head,
            slot_dtype=slot_dtype,
        )
        self._step = tf.function(self._distributed, autograph=False)

    def step(self, inputs, labels, example_weights):
        """Runs one, and updates everything.

        Returns:
            dict of `losses`, `gradients` of the embeddings, with ranks `ranks`, and
            with sampling `sampled`, the classes that took part.
        """
        dtype = keras.config.floatx()
        outcome = self._step(
            tf.constant(inputs, dtype),
            tf.constant(labels, tf.int64),
            tf.constant(example_weights / example_weights.sum(), dtype),
        )
        parts = {
            name: [p.numpy() for p in self.strategy.experimental_local_results(value)]
            for name, value in outcome.items()
        }
        found = {name: np.concatenate(value) for name, value in parts.items()}
        if "sampled" in parts:
            found["sampled"] = join_samples(self.head, parts["sampled"])
        return found

    def _distributed(self, inputs, labels, upstream):
        return self.strategy.run(self._replica, args=(inputs, labels, upstream))

    def _replica(self, inputs, labels, upstream):
        x, y, u = (collectives.own_slice(v) for v in (inputs, labels, upstream))
        with tf.GradientTape() as tape:
            embeddings = x @ self.kernel.value
        step = tf.convert_to_tensor(self.optimizer.iterations)
        outcome = self.head.loss_and_gradients(
            embeddings, y, u, self.case.ranks, step=step
        )
        given = [outcome.embedding_gradients]
        gradients = [tape.gradient(embeddings, self.kernel.value, given)]
        pending = outcome.pending
        if self.case.dense:
            gradients += self.head.weight_gradients(pending)
        finite = self.updater.apply(
            gradients, None if self.case.dense else pending, tf.constant(True)
        )
        self.head.keep_state(outcome.state, finite)
        found = {"losses": outcome.losses, "gradients": outcome.embedding_gradients}
        if self.case.ranks:
            found["ranks"] = outcome.ranks
        if "chosen" in pending:
            found["sampled"] = pending["chosen"]
        return found

    def weights(self):
        """`{name: array}` of the matrix and of the head; all copies are the same."""
        copies = self.strategy.experimental_local_results(self.kernel.value)
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])
        arrays = self.head.arrays().items()
        whole = {name: rows.read(0, rows.shape[0]) for name, rows in arrays}
        return {"kernel": copies[0].numpy()} | whole

    def slots(self):
        """`{"weight/velocity": array}` of the matrix and of the head."""
        held = {v.name: v.numpy() for v in self.optimizer.variables if v.shape}
        found = {}
        for name, value in held.items():
            for start in ("kernel_", "head_weight_", "head_bias_"):
                if name.startswith(start):
                    of = start.removeprefix("head_").removesuffix("_")
                    found[f"{of}/{name.removeprefix(start)}"] = value
        for name, rows in self.updater.slots().items():
            found[name] = rows.read(0, rows.shape[0])
        return found

    def state(self):
        """`{name: number}` of the loss."""
        return {n: v.numpy() for n, v in self.head.state_variables.items()}


def join_samples(head, rows):
    """Numbers of the classes, from every replica's rows."""
    first = head.weight.split.first
    return np.concatenate([own + first(r) for r, own in enumerate(rows)])


def sample(head, strategy, labels, step):
    """The classes that the head samples for a global batch; None for all."""
    if getattr(head, "sample_rate", 1) == 1:
        return None

    @tf.function
    def sampled():
        def replica():
            own = collectives.own_slice(tf.constant(labels, tf.int64))
            return head.sample(own, tf.constant(step, tf.int64))

        return strategy.run(replica)

    rows = strategy.experimental_local_results(sampled())
    return join_samples(head, [own.numpy() for own in rows])


def update(optimizer, weights, gradients, slots, step):
    """`oracle.update` for one of `OPTIMIZERS`, over dicts of arrays."""
    _, rule, given = OPTIMIZERS[optimizer]
    names = list(weights)
    groups = [names]
    bound = None
    if "clipnorm" in optimizer:
        bound = BOUND
        groups = [names] if optimizer == "global_clipnorm" else [[n] for n in names]
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
            dict of the mean `loss` and the `accuracy`.
        """
        total, loss, correct, by = batch[2].sum(), 0.0, 0.0, {}
        for part in parts:
            own = [value[part] for value in batch]
            found = self.gradients(*own, sampled)
            share = own[2].sum() / total
            loss += (own[2] * found["losses"]).sum() / total
            correct += (own[2] * (found["ranks"] == 0)).sum() / total
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
            unit = weight / np.linalg.norm(weight, axis=1, keepdims=True)
            scores = embeddings @ unit.T
        above = scores > scores[np.arange(len(labels)), labels][:, None]
        return above[:, slice(None) if sampled is None else sampled].sum(axis=1)

    def apply(self, gradients, sampled=None):
        """The update; of classes that are not sampled nothing changes."""
        self.steps += 1
        rows = {name: slice(None) for name in self.weights}
        if sampled is not None:
            rows |= {"weight": sampled, "bias": sampled}
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


def check(case, tolerance=1e-5, **options):
    """Runs a case and asserts that it agrees with the oracle after every step."""
    example = make_example(case)
    stepper, expected = Stepper(case, example, **options), Expected(case, example)
    for batch in example.batches():
        found = stepper.step(*batch)
        wanted = expected.step(*batch, found.get("sampled"))
        close(found["losses"], wanted["losses"], tolerance)
        close(found["gradients"], wanted["gradients"], tolerance)
        if case.ranks:
            np.testing.assert_array_equal(found["ranks"], wanted["ranks"])
    for name, value in stepper.weights().items():
        close(value, expected.weights[name], tolerance)
    slots, found = expected.whole_slots(), stepper.slots()
    assert sorted(found) == sorted(slots)
    for name, value in slots.items():
        close(found[name], value, tolerance)
    assert set(stepper.state()) == set(expected.state or {})
    for name, value in stepper.state().items():
        close(value, expected.state[name], tolerance)
    return stepper
