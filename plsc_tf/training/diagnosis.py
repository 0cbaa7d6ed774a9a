"""Which tensor of a training step is the first that is not finite.

The passes of the step run again on the batch, without changing the model; in a cluster
on all workers, which come to the same finding. Only outputs of layers, losses and
gradients are watched, and only here: the graph of a step is as fast as without.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import gather
from plsc_tf.reporting.layers import watched

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier

BLOCK_ROWS = 16384
# Numbers of examples or classes that a finding holds, and that its text shows.
KEPT = 16
SHOWN = 4
ADVICE = "Lower the learning rate, warm up, or clip the gradients (max_gradient_norm)"
# Kinds of findings whose rows are examples of the batch.
BY_EXAMPLE = ("images", "output", "embeddings", "loss", "embedding gradient")
# Those of the backward pass; the class weights are looked at before it.
BACKWARD = ("loss", "embedding gradient", "class gradient", "gradient")
WORDS = {
    "images": "the images of the batch",
    "weight": "the weight {}",
    "output": "the output of layer {}",
    "penalty": "the penalty that layers add to the loss",
    "embeddings": "the embeddings",
    "auxiliary loss": "the loss of the auxiliary logits",
    "class weight": "the head's {}",
    "loss": "the loss",
    "embedding gradient": "the gradient of the embeddings",
    "gradient": "the gradient of {}",
    "class gradient": "the gradient of the head's {}",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first tensor that is not finite.

    Attributes:
        kind: one of `WORDS`.
        name: of the layer, weight or array.
        shape: of the tensor.
        dtype: of the tensor.
        nan: how many of its numbers are NaN.
        inf: how many are infinite.
        rows: the first few rows that are not finite: numbers of examples in the
            global batch (kinds `BY_EXAMPLE`) or of classes; empty where rows mean
            neither.
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int = 0
    inf: int = 0
    rows: tuple[int, ...] = ()

    def __str__(self):
        return f"{WORDS[self.kind].format(self.name)} ({self.numbers()})"

    def numbers(self) -> str:
        """Type, shape, and which numbers are not finite."""
        rows = ""
        if self.rows:
            what = "examples" if self.kind in BY_EXAMPLE else "classes"
            listed = ", ".join(map(str, self.rows[:SHOWN]))
            rows = f"; {what} {listed}{', …' if len(self.rows) > SHOWN else ''}"
        shape = "×".join(map(str, self.shape)) or "scalar"
        return f"{self.dtype} {shape}: {self.nan} NaN, {self.inf} infinite{rows}"


def describe(finding: Finding | None, step: int) -> tuple[str, str]:
    """(sentence about the tensor that is not finite in a step, advice).

    Args:
        finding: the `Finding`, or None where the batch is finite when it is run again.
        step: number of the step.
    """
    if finding is None:
        text = (
            f"The loss or a gradient was not finite in step {step}, but was when the "
            "batch was run again: random layers, such as dropout, drew other numbers."
        )
    elif finding.kind == "images":
        values = "NaN" if finding.nan else "infinite values"
        numbers = finding.numbers()
        text = f"The images of the batch of step {step} contain {values} ({numbers})."
        return text, "Fix these images, or leave them out"
    else:
        text = f"The first tensor that is not finite in step {step} is {finding}."
    return text, ADVICE


def error(model: Classifier, batch: Any) -> FloatingPointError:
    """The FloatingPointError about a step that was not finite.

    Args:
        model, batch: as of `first_nonfinite`.
    """
    step = model.trainer.position.global_step + 1
    message, advice = describe(first_nonfinite(model, batch), step)
    if model.loss_scale is not None:
        last = model.loss_scale.last_value()
        message += f" The loss scale ({last:g}) cannot be lowered any more."
    return FloatingPointError(
        f"{message} The weights are those of the step before. {advice}."
    )


def first_nonfinite(model: Classifier, batch: Any) -> Finding | None:
    """Runs a batch again and names the first tensor that is not finite.

    The order is that of the step: images, the layers' weights and outputs, the
    embeddings, penalties, an auxiliary classifier's loss, the class weights, losses,
    then the gradients backwards from the loss.

    Args:
        model: the compiled `Classifier`, with the weights of before the step.
        batch: per-replica tensors, as `Trainer.run_step` took them.

    Returns:
        a `Finding`, or None when everything is finite this time.
    """
    parts = np.split(_whole(model, batch[0]), model.trainer.batch_parts)
    for number, images in enumerate(parts):
        finding = _examine("images", "images", images, number * len(images))
        if finding is not None:
            return finding
    tensors = _Watch(model).run(batch)
    return (
        _first([one for one in tensors if one.about.kind not in BACKWARD], parts)
        or first_nonfinite_class(model)
        or _first([one for one in tensors if one.about.kind in BACKWARD], parts)
    )


def global_batch(model: Classifier, batch: Any) -> tuple[np.ndarray, ...]:
    """The arrays (images, labels, weights) of a per-replica batch, with padding."""
    return tuple(_whole(model, value) for value in batch[:3])


def first_nonfinite_class(model: Classifier) -> Finding | None:
    """A `Finding` about the head's weights, or None; reads them block by block."""
    for name, array in model.head.arrays().items():
        for low in range(0, array.shape[0], BLOCK_ROWS):
            rows = array.read(low, min(low + BLOCK_ROWS, array.shape[0]))
            finding = _examine("class weight", name, rows, low)
            if finding is not None:
                return dataclasses.replace(finding, shape=tuple(array.shape))
    return None


def _whole(model, value):
    """What all replicas of all workers hold, one after the other."""
    local = [v.numpy() for v in model.strategy.experimental_local_results(value)]
    return gather(model.strategy, local).astype(local[0].dtype)


@dataclasses.dataclass
class _Tensor:
    """A tensor of the passes.

    Attributes:
        about: the `Finding`, without numbers.
        layer: that returned it, or None.
        part: number of the part of the replica's batch.
        counts: of `_counts`; of all replicas `[replicas, 2 + KEPT]`.
    """

    about: Finding
    layer: Any
    part: int
    counts: Any


class _Watch:
    """Runs the passes of a step again and looks at their tensors.

    Args:
        model: the `Classifier`.
    """

    def __init__(self, model):
        self.model = model
        self._local = threading.local()  # each replica is traced in its own thread
        self._tensors = []

    def run(self, batch):
        """The `_Tensor`s of a per-replica batch, in the order of the step."""
        model = self.model

        @tf.function(autograph=False)
        def run(batch):
            return model.strategy.run(self._replica, args=batch)

        with contextlib.ExitStack() as stack:
            for network in model.networks():
                stack.enter_context(watched(network, self._see_layer))
            stack.enter_context(_returned(model, "forward", self._see_forward))
            head = _returned(model.head, "loss_and_gradients", self._see_head)
            stack.enter_context(head)
            counts = _whole(model, run(batch))
        counts = counts.reshape(-1, len(self._tensors), counts.shape[-1])
        return [
            dataclasses.replace(one, counts=counts[:, i])
            for i, one in enumerate(self._tensors)
        ]

    def _replica(self, *tensors):
        model, self._local.tensors, self._local.part = self.model, [], 0
        states = [variable.value for variable in model.untrained_variables()]
        before = [tf.identity(value) for value in states]
        gradients = model.trainer.gradients(*tensors).gradients
        for value, old in zip(states, before, strict=True):
            value.assign(old)
        variables = model.trained_network_variables()
        of_network = gradients[: len(variables)]
        of_classes = gradients[len(variables) :]
        for name, gradient in zip(model.head.arrays(), of_classes, strict=False):
            self._add("class gradient", name, gradient)
        # Backwards: what overflows at one layer is not finite in all before it.
        for variable, gradient in zip(variables[::-1], of_network[::-1], strict=True):
            self._add("gradient", variable.path, gradient)
        self._tensors = self._local.tensors
        return tf.stack([one.counts for one in self._tensors])

    def _see_layer(self, layer, outputs):
        for output in filter(tf.is_tensor, tf.nest.flatten(outputs)):
            self._add("output", layer.path, output, layer)

    def _see_forward(self, outcome):
        # The output of a layer may not be the model's: operations can follow it.
        embeddings, penalties, extra = outcome
        self._add("embeddings", "embeddings", embeddings)
        self._add("penalty", "penalty", tf.add_n([tf.zeros([]), *penalties]))
        self._add("auxiliary loss", "auxiliary", extra)

    def _see_head(self, outcome):
        self._add("loss", "loss", outcome.losses)
        self._add("embedding gradient", "embeddings", outcome.embedding_gradients)
        self._local.part += 1

    def _add(self, kind, name, value, layer=None):
        if value is None or not tf.as_dtype(value.dtype).is_floating:
            return
        value = tf.convert_to_tensor(value)
        about = Finding(kind, name, tuple(value.shape), value.dtype.name)
        counts = _counts(value, kind in BY_EXAMPLE)
        self._local.tensors.append(_Tensor(about, layer, self._local.part, counts))


@contextlib.contextmanager
def _returned(owner, name, see):
    """Calls `see` with what a method of an object returns."""
    method = getattr(owner, name)

    def call_and_see(*args, **kwargs):
        outcome = method(*args, **kwargs)
        see(outcome)
        return outcome

    setattr(owner, name, call_and_see)
    try:
        yield
    finally:
        delattr(owner, name)


def _first(tensors, parts):
    """The first of all replicas' tensors that is not finite, a `Finding`, or None.

    Args:
        tensors: of `_Watch`.
        parts: images of each part of all replicas.
    """
    replicas, size = len(tensors[0].counts), len(parts[0])
    for replica in range(replicas):
        for one in tensors:
            # An example meets the classes once with each of its labels.
            first = (replica * len(parts) // replicas + one.part) * size
            finding = _finding(one.about, one.counts[replica], first, size)
            if finding is not None:
                return (one.layer and _in_weights(one.layer)) or finding
    return None


def _finding(about, counts, first, size):
    """The `Finding` with the numbers of `_counts`, None where all are finite."""
    nan, inf, *rows = counts
    if not nan and not inf:
        return None
    rows = tuple(first + int(row) % size for row in rows if row >= 0)
    return dataclasses.replace(about, nan=int(nan), inf=int(inf), rows=rows)


def _counts(value, with_rows):
    """[NaN, infinite, the first few rows that are not finite or -1], float64."""
    value = tf.cast(value, tf.float64)
    nan, inf = (
        tf.reduce_sum(tf.cast(test(value), tf.float64))
        for test in (tf.math.is_nan, tf.math.is_inf)
    )
    rows = tf.fill([KEPT], tf.constant(-1.0, tf.float64))
    if with_rows and value.shape.rank:
        flat = tf.reshape(value, [tf.shape(value)[0], -1])
        bad = tf.where(tf.reduce_any(~tf.math.is_finite(flat), axis=1))[:KEPT, 0]
        rows = tf.concat([tf.cast(bad, tf.float64), rows], 0)[:KEPT]
    return tf.concat([[nan], [inf], rows], axis=0)


def _in_weights(layer):
    """The first weight that a layer's call in training reads and that is not finite."""
    weights = layer.trainable_weights if layer.trainable else layer.weights
    findings = (_examine("weight", w.path, w.numpy()) for w in weights)
    return next(filter(None, findings), None)


def _examine(kind, name, values, first=None):
    """A `Finding` where an array is not finite, else None.

    Args:
        kind, name: of the tensor, see `Finding`.
        values: the array.
        first: number of its first row; None where rows are not numbered.
    """
    dtype = tf.as_dtype(values.dtype)
    if not dtype.is_floating:
        return None
    counts = _counts(tf.convert_to_tensor(values), first is not None).numpy()
    about = Finding(kind, name, tuple(values.shape), dtype.name)
    return _finding(about, counts, first, values.size)
