"""Finds the first tensor of a training step that contains NaN or infinity.

The step's passes run again on the batch without changing the model. In a cluster, all
workers run them and reach the same finding. Layer outputs, losses and gradients are
examined only in this second run, so the graph of an ordinary step is not slower.
"""

import contextlib
import dataclasses
import threading
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import gather
from plsc_tf.reporting.layers import watched
from plsc_tf.training import replica_step
from plsc_tf.training.circular import Classifier

BLOCK_ROWS = 16384
# How many example or class numbers a finding keeps, and how many its text shows.
KEPT, SHOWN = 16, 4
ADVICE = "Lower the learning rate, warm up, or clip the gradients (max_gradient_norm)"
# Kinds of findings whose rows are examples of the batch.
BY_EXAMPLE = ("images", "output", "embeddings", "loss", "embedding gradient")
WORDS = {
    "images": "the images of the batch",
    "weight": "the weight {}",
    "output": "the output of layer {}",
    "penalty": "the penalty that layers add to the loss",
    "embeddings": "the embeddings",
    "auxiliary loss": "the loss of the auxiliary logits",
    "distillation": "the loss of the distillation from the teacher",
    "class weight": "the head's {}",
    "loss": "the loss",
    "embedding gradient": "the gradient of the embeddings",
    "gradient": "the gradient of {}",
    "class gradient": "the gradient of the head's {}",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first tensor that contains NaN or infinity.

    Attributes:
        kind: a key of `WORDS`.
        name: name of the layer, weight or array.
        shape: the tensor's shape.
        dtype: the tensor's dtype.
        nan: number of NaN values.
        inf: number of infinite values.
        rows: the first few rows with NaN or infinity, as numbers of examples in the
            global batch (kinds `BY_EXAMPLE`) or of classes; empty if rows are neither
            examples nor classes.
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
        """Returns a text with dtype, shape, numbers of NaN and infinity, and rows."""
        rows = ""
        if self.rows:
            what = "examples" if self.kind in BY_EXAMPLE else "classes"
            listed = ", ".join(map(str, self.rows[:SHOWN]))
            rows = f"; {what} {listed}{', …' if len(self.rows) > SHOWN else ''}"
        shape = "×".join(map(str, self.shape)) or "scalar"
        return f"{self.dtype} {shape}: {self.nan} NaN, {self.inf} infinite{rows}"


def describe(finding: Finding | None, step: int) -> tuple[str, str]:
    """Describes a finding in a sentence, and gives advice.

    Args:
        finding: the `Finding`, or None if everything is finite in the second run.
        step: number of the step.

    Returns:
        (sentence, advice).
    """
    if finding is None:
        text = (
            f"The loss or a gradient was not finite in step {step}, but was finite "
            "when the batch was run again: random layers (dropout) drew other numbers."
        )
    elif finding.kind == "images":
        values = "NaN" if finding.nan else "infinite values"
        numbers = finding.numbers()
        text = f"The images of the batch of step {step} contain {values} ({numbers})."
        return text, "Fix these images, or leave them out"
    else:
        text = f"The first tensor that is not finite in step {step} is {finding}."
    return text, ADVICE


def first_nonfinite(model: Classifier, batch: Any) -> Finding | None:
    """Runs a batch again and finds the first tensor with NaN or infinity.

    Tensors are examined in this order: images, the class weights, the layers' weights
    and outputs, the embeddings, penalties, an auxiliary classifier's loss, losses, and
    the gradients backwards from the loss.

    Args:
        model: the compiled `Classifier`, with the weights from before the step.
        batch: per-replica tensors, as passed to `Trainer.run_step`.

    Returns:
        a `Finding`, or None if everything is finite in this run.
    """
    images = _whole(model, batch[0])
    finding = _examine("images", "images", images, 0) or first_nonfinite_class(model)
    if finding is not None:
        return finding
    size = len(images) // model.trainer.batch_parts
    for (about, layer, part), counts in _Watch(model).run(batch):
        for replica, of_replica in enumerate(counts):
            # With two labels per example, the head's tensors have two rows per example,
            # so `_finding` takes row numbers modulo the size.
            first = (replica * model.accumulation_steps + part) * size
            if (finding := _finding(about, of_replica, first, size)) is not None:
                return (layer and _in_weights(layer)) or finding
    return None


def global_batch(model: Classifier, batch: Any) -> tuple[np.ndarray, ...]:
    """Gathers (images, labels, weights) of a per-replica batch, including padding."""
    return tuple(_whole(model, value) for value in batch[:3])


def first_nonfinite_class(model: Classifier) -> Finding | None:
    """Returns a `Finding` about the head's weights, or None.

    The weights are read block by block.
    """
    for name, array in model.head.arrays().items():
        for low in range(0, array.shape[0], BLOCK_ROWS):
            rows = array.read(low, min(low + BLOCK_ROWS, array.shape[0]))
            if (finding := _examine("class weight", name, rows, low)) is not None:
                return dataclasses.replace(finding, shape=tuple(array.shape))
    return None


def _whole(model, value):
    """Concatenates a value's parts on all replicas of all workers."""
    local = [v.numpy() for v in model.strategy.experimental_local_results(value)]
    return gather(model.strategy, local).astype(local[0].dtype)


class _Watch:
    """Runs the passes of a step again and counts NaN and infinity in their tensors.

    Args:
        model: the `Classifier`.
    """

    def __init__(self, model):
        self.model = model
        self._local = threading.local()  # each replica is traced in its own thread
        self._tensors = []

    def run(self, batch):
        """Returns the tensors of the passes on a per-replica batch, in their order.

        Returns:
            iterator of ((`Finding` without counts and rows, layer that returned the
            tensor or None, number of the part of the replica's batch), its `_counts` on
            each replica).
        """
        model, trainer, head = self.model, self.model.trainer, self.model.head

        @tf.function(autograph=False)
        def run(batch):
            return model.strategy.run(self._replica, args=batch)

        with contextlib.ExitStack() as stack:
            # Keras's calls show the output of every layer.
            stack.callback(setattr, trainer, "forward", trainer.forward)
            trainer.forward = _seen(model.forward, self._see_forward)
            stack.callback(delattr, head, "loss_and_gradients")
            head.loss_and_gradients = _seen(head.loss_and_gradients, self._see_head)
            for network in model.networks():
                stack.enter_context(watched(network, self._see_layer))
            counts = _whole(model, run(batch))
        counts = counts.reshape(-1, len(self._tensors), counts.shape[-1])
        return zip(self._tensors, counts.swapaxes(0, 1), strict=True)

    def _replica(self, *tensors):
        model, local = self.model, self._local
        local.tensors, local.counts, local.part = [], [], 0
        states = [variable.value for variable in model.untrained_variables()]
        before = [tf.identity(value) for value in states]
        passes = replica_step.gradients(model, *tensors)
        gradients = passes.gradients
        self._add("distillation", "teacher", passes.distillation)
        for value, old in zip(states, before, strict=True):
            value.assign(old)
        variables = model.trained_network_variables()
        of_network = gradients[: len(variables)]
        of_classes = gradients[len(variables) :]
        for name, gradient in zip(model.head.arrays(), of_classes, strict=False):
            self._add("class gradient", name, gradient)
        # Go backwards: an overflow in one layer's gradient also makes the gradients of
        # all earlier layers NaN or infinite.
        for variable, gradient in zip(variables[::-1], of_network[::-1], strict=True):
            self._add("gradient", variable.path, gradient)
        self._tensors = local.tensors
        return tf.stack(local.counts)

    def _see_layer(self, layer, outputs):
        for output in filter(tf.is_tensor, tf.nest.flatten(outputs)):
            self._add("output", layer.path, output, layer)

    def _see_forward(self, outcome):
        # The last layer's output may differ from the model's: operations can follow it.
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
        self._local.tensors.append((about, layer, self._local.part))
        self._local.counts.append(_counts(value, kind in BY_EXAMPLE))


def _seen(function, see):
    """Returns a function that also calls `see` with each of its return values."""

    def call(*args, **kwargs):
        outcome = function(*args, **kwargs)
        see(outcome)
        return outcome

    return call


def _finding(about, counts, first, size):
    """Adds the result of `_counts` to a `Finding`; returns None if all are finite."""
    nan, inf, *rows = counts
    if not nan and not inf:
        return None
    rows = tuple(first + int(row) % size for row in rows if row >= 0)
    return dataclasses.replace(about, nan=int(nan), inf=int(inf), rows=rows)


def _counts(value, with_rows):
    """Counts NaN and infinity in a tensor.

    Returns:
        float64 `[2 + KEPT]`: number of NaN, number of infinite values, and the first
        rows that contain either, padded with -1.
    """
    value = tf.cast(value, tf.float64)
    nan = tf.math.count_nonzero(tf.math.is_nan(value), dtype=tf.float64)
    inf = tf.math.count_nonzero(tf.math.is_inf(value), dtype=tf.float64)
    rows = tf.fill([KEPT], tf.constant(-1.0, tf.float64))
    if with_rows and value.shape.rank:
        flat = tf.reshape(value, [tf.shape(value)[0], -1])
        bad = tf.where(tf.reduce_any(~tf.math.is_finite(flat), axis=1))[:KEPT, 0]
        rows = tf.concat([tf.cast(bad, tf.float64), rows], 0)[:KEPT]
    return tf.concat([[nan], [inf], rows], axis=0)


def _in_weights(layer):
    """Returns a `Finding` about a weight that the layer reads in training, or None."""
    weights = layer.trainable_weights if layer.trainable else layer.weights
    findings = (_examine("weight", w.path, w.numpy()) for w in weights)
    return next(filter(None, findings), None)


def _examine(kind, name, values, first=None):
    """Returns a `Finding` if an array contains NaN or infinity, else None.

    Args:
        kind, name: kind and name of the tensor, see `Finding`.
        values: the array.
        first: number of the array's first row, or None to report no rows.
    """
    dtype = tf.as_dtype(values.dtype)
    if not dtype.is_floating:
        return None
    counts = _counts(tf.convert_to_tensor(values), first is not None).numpy()
    about = Finding(kind, name, tuple(values.shape), dtype.name)
    return _finding(about, counts, first, values.size)
