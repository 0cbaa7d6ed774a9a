"""Which tensor of a training step is the first that is not finite.

The batch is run again, replica by replica and layer by layer, without changing the
model; in a cluster by all workers, which find the same. Only what the layers return is
watched, so the graph of the step stays as fast as without any of this.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import gather
from plsc_tf.reporting.layers import watched
from plsc_tf.training import batching
from plsc_tf.training.finding import all_finite, describe, examine
from plsc_tf.training.mixing import of_both_labels

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier
    from plsc_tf.training.finding import Finding

BLOCK_ROWS = 16384


def first_nonfinite(model: Classifier, batch: Any) -> Finding | None:
    """Runs a batch again and names the first tensor that is not finite.

    The order is that of the step: images, the layers' weights and outputs, the
    embeddings, an auxiliary classifier's loss, the class weights, the losses, then the
    gradients backwards from the loss. Dropout draws other numbers than in the step.

    Args:
        model: the compiled `Classifier`, with the weights of before the step.
        batch: per-replica tensors, as `Trainer.run_step` took them.

    Returns:
        a `Finding`, or None when everything is finite this time.
    """
    parts = _parts(model, batch)
    finding = _in_images(parts)
    if finding is not None:
        return finding
    parts, share = _mixed(model, parts)
    parts = _with_shares(parts)
    embeddings, first = [], 0
    for part in parts:
        finding, embedded = _in_forward(model, part, first)
        if finding is not None:
            return finding
        embeddings.append(embedded)
        first += len(embedded)
    finding = first_nonfinite_class(model)
    if finding is not None:
        return finding
    finding, gradients = _in_head(model, parts, embeddings, share)
    return finding or _in_backward(model, parts, gradients)


def error(model: Classifier, batch: Any) -> FloatingPointError:
    """The FloatingPointError about a step that was not finite.

    Args:
        model, batch: as of `first_nonfinite`.
    """
    step = model.trainer.position.global_step + 1
    message, advice = describe(first_nonfinite(model, batch), step)
    scale = ""
    if model.loss_scale is not None:
        scale = (
            f" The loss scale ({model.loss_scale.last_value():g}) cannot be lowered "
            "any more."
        )
    return FloatingPointError(
        f"{message}{scale} The weights are those of the step before. {advice}."
    )


def global_batch(model: Classifier, batch: Any) -> tuple[np.ndarray, ...]:
    """The arrays (images, labels, weights) of a per-replica batch, with padding."""
    parts = _parts(model, batch[:3])
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def first_nonfinite_class(model: Classifier) -> Finding | None:
    """A `Finding` about the head's weights, or None; reads them block by block."""
    for name, array in model.head.arrays().items():
        for low in range(0, array.shape[0], BLOCK_ROWS):
            rows = array.read(low, min(low + BLOCK_ROWS, array.shape[0]))
            finding = examine("class weight", name, rows, first=low)
            if finding is not None:
                return dataclasses.replace(finding, shape=tuple(array.shape))
    return None


def _parts(model, batch):
    """The batch as numpy, [(images, labels, weights[, real])] of each part of a step.

    These are the replicas' shares of the batch, cut further where gradients are
    accumulated.
    """
    columns = []
    for value in batch:
        whole = np.concatenate(_of_all(model, value))
        columns.append(np.split(whole, model.trainer.batch_parts))
    return list(zip(*columns, strict=True))


def _mixed(model, parts):
    """(mixed `_parts`, share of the first label; None without mixing)."""
    if model.mixing is None:
        return parts, None
    images, labels, *rest = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    # Neighbors are on one replica: all replicas mix at once as each does alone.
    step = tf.convert_to_tensor(model.optimizer.iterations)
    images, labels, share = model.mixing(
        tf.constant(images), tf.constant(labels), rest[0], step
    )
    columns = (
        np.split(value, len(parts)) for value in (images.numpy(), labels.numpy(), *rest)
    )
    return list(zip(*columns, strict=True)), share


def _with_shares(parts):
    """[(images, labels, share of each example in the objective)] of `_parts`."""
    count = sum(part[-1].sum() for part in parts)
    return [
        (images, labels, weights / np.maximum(count, 1e-12))
        for images, labels, weights, *_ in parts
    ]


def _of_all(model, value):
    """What every replica of every worker holds: `[replicas, ...]`."""
    local = [v.numpy()[None] for v in model.strategy.experimental_local_results(value)]
    return gather(model.strategy, local).astype(local[0].dtype)


def _in_images(parts):
    first = 0
    for images, *_ in parts:
        finding = examine("images", "images", images, first)
        if finding is not None:
            return finding
        first += len(images)
    return None


def _in_forward(model, part, first):
    """(finding or None, embeddings) of one replica's images."""
    watch = _Watch(first)
    with contextlib.ExitStack() as stack:
        for network in _networks(model):
            stack.enter_context(watched(network, watch.see))
        embedded, penalty, extra = _embed(
            model, _values(model.trained_network_variables()), part
        )
    # The output of a layer may not be the model's: operations can follow it.
    finding = (
        watch.finding()
        or examine("embeddings", "embeddings", embedded, first)
        or examine("penalty", "penalty", penalty)
        or examine("auxiliary loss", "auxiliary", extra)
    )
    return finding, embedded


def _networks(model):
    """The backbone, and the auxiliary classifier where the model has one."""
    return [model.backbone, *([model.auxiliary.branch] if model.auxiliary else [])]


def _embed(model, trained, part):
    """A part's forward pass, without any change of the model.

    Args:
        model: the `Classifier`.
        trained: values of its `trained_network_variables`.
        part: (images, labels, shares).

    Returns:
        (embeddings, sum of the layers' penalties, loss of the auxiliary logits).
    """
    images, labels, shares = (tf.convert_to_tensor(value) for value in part)
    mapping = list(zip(model.trained_network_variables(), trained, strict=True))
    with keras.StatelessScope(state_mapping=mapping, collect_losses=True):
        embedded, penalties, extra = model.forward(images, labels, shares)
    if extra is None:
        extra = tf.zeros([])
    return embedded, tf.add_n([tf.zeros([]), *penalties]), extra


def _in_head(model, parts, embeddings, mixed):
    """(finding or None, gradient of each part's embeddings); `mixed` as of `_mixed`."""
    embedded = tf.concat([tf.cast(e, keras.config.floatx()) for e in embeddings], 0)
    _, labels, shares = (np.concatenate(column) for column in zip(*parts, strict=True))
    upstream = tf.constant(shares, embedded.dtype)

    def step(embedded, labels, upstream):
        batch = embedded, labels, upstream
        of_head = {"step": model.optimizer.iterations.value}
        if mixed is None:
            outcome = model.head.loss_and_gradients(*batch, **of_head)
        else:
            outcome = of_both_labels(model.head, *batch, mixed, of_head)
        gradients = []
        if not model.head.sharded:
            # Those of shards are formed when it is known that all is well.
            gradients = model.head.weight_gradients(outcome.pending)
        return outcome.losses, outcome.embedding_gradients, gradients

    @tf.function
    def run(*share):
        return model.strategy.run(step, args=share)

    share = batching.split(model.strategy, (embedded, tf.constant(labels), upstream))
    losses, gradients, of_classes = run(*share)
    gradients = np.concatenate(_of_all(model, gradients))
    finding = examine(
        "loss", "loss", np.concatenate(_of_all(model, losses))
    ) or examine("embedding gradient", "embeddings", gradients)
    for name, shares in zip(model.head.arrays(), of_classes, strict=False):
        whole = _of_all(model, shares).sum(axis=0)
        finding = finding or examine("class gradient", name, whole)
    return finding, np.split(gradients, len(parts))


def _in_backward(model, parts, gradients):
    """Looks at the network's gradients, summed over the parts."""
    variables = model.trained_network_variables()
    scale = 1.0 if model.loss_scale is None else model.loss_scale.last_value()
    sums = [0.0] * len(variables)
    for part, gradient in zip(parts, gradients, strict=True):
        values = _values(variables)
        with tf.GradientTape() as tape:
            tape.watch(values)
            embedded, penalty, extra = _embed(model, values, part)
        scaled = tf.cast(gradient * scale, embedded.dtype)
        share = tf.constant(scale / len(parts), penalty.dtype)
        of_part = tape.gradient(
            [embedded, penalty, extra],
            values,
            output_gradients=[scaled, share, tf.constant(scale, extra.dtype)],
        )
        sums = [
            total if g is None else total + tf.convert_to_tensor(g)
            for total, g in zip(sums, of_part, strict=True)
        ]
    # Backwards: what overflows at one layer is not finite in all layers before it.
    for variable, total in zip(variables[::-1], sums[::-1], strict=True):
        if tf.is_tensor(total):  # not so where no loss depends on it
            finding = examine("gradient", variable.path, total, rows=False)
            if finding is not None:
                return finding
    return None


def _values(variables):
    return [tf.convert_to_tensor(variable.value) for variable in variables]


class _Watch:
    """Keeps the layer and the output that were not finite first."""

    def __init__(self, first):
        self._first = first
        self._layer = None
        self._output = None

    def see(self, layer, outputs):
        if self._output is None:
            for output in filter(tf.is_tensor, tf.nest.flatten(outputs)):
                if not all_finite(output):
                    self._layer, self._output = layer, output
                    return

    def finding(self):
        """A weight of that layer, else its output; None when all were finite."""
        if self._output is None:
            return None
        output = examine("output", self._layer.path, self._output, self._first)
        return _in_weights(self._layer) or output


def _in_weights(layer):
    """The first weight that a layer's call in training reads and that is not finite."""
    weights = layer.trainable_weights if layer.trainable else layer.weights
    for weight in weights:
        finding = examine("weight", weight.path, weight.numpy(), rows=False)
        if finding is not None:
            return finding
    return None
