"""Histograms of the angles between embeddings and class centers."""

import math

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.heads.base import Head
from plsc_tf.heads.kernels import flat, nearest
from plsc_tf.heads.tiles import locate, read
from plsc_tf.parallel.strategy import gather

NAMES = ("angles/own_centre", "angles/nearest_other")


class AngleHistograms(keras.callbacks.Callback):
    """Records angles to the true class's center and the nearest other, in degrees.

    Every `every_n_steps` steps, the network processes the batch once more, in inference
    mode and without gradients. The class weights are not moved between devices. All
    workers in a cluster must use this callback.

    Args:
        recorder: the `Recorder`.
        every_n_steps: number of steps between two histograms.
    """

    def __init__(self, recorder, every_n_steps):
        super().__init__()
        self.recorder, self.every_n_steps = recorder, every_n_steps
        self._function = None

    def wants(self, step):
        """Returns whether angles are measured after this step; see `several_steps`."""
        return step % self.every_n_steps == 0

    def on_train_batch_end(self, batch, logs=None):
        """Records the angles if a histogram is due."""
        step = self.model.trainer.position.global_step
        if step % self.every_n_steps == 0 and self.model.trainer.step_result:
            angles_to = self.measure(self.model.trainer.step_batch)
            for name, degrees in zip(NAMES, angles_to, strict=True):
                self.recorder.histogram(step, name, degrees)
                self.recorder.scalars(step, {f"{name}_mean": degrees.mean()})

    def measure(self, batch):
        """Measures a batch's angles in degrees.

        Args:
            batch: per-replica tensors, in which padding has weight 0.

        Returns:
            (angles to the true class's center, angles to the nearest other center),
            both float32 `[examples]`.
        """
        if self._function is None:
            self._function = tf.function(self._distributed, autograph=False)
        strategy, columns = self.model.strategy, []
        for value in (*self._function(batch), batch[-1]):
            local = strategy.experimental_local_results(value)
            local = [np.asarray(one)[None] for one in local]
            columns.append(gather(strategy, local).reshape(-1))
        own, other, real = columns
        return own[real > 0], other[real > 0]

    def _distributed(self, batch):
        # Use float32, like `Classifier.embed`, because half precision may overflow.
        with in_float32(self.model.backbone):
            return self.model.strategy.run(self._replica, args=batch)

    def _replica(self, images, labels, *weights):
        del weights
        embeddings = tf.cast(self.model(images, training=False), keras.config.floatx())
        return angles(self.model.head, embeddings, labels)


def angles(head: Head, embeddings: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
    """Computes each example's angles to its own and the nearest other class center.

    Call this function in replica context. Weights stay on their replicas; replicas
    exchange only embeddings and their largest cosines.

    Args:
        head: a built `Head`.
        embeddings: `[batch, emb]` embeddings of the replica's own examples.
        labels: int64 `[batch]`.

    Returns:
        list of two tensors `[batch]` for the replica's own examples, in degrees from 0
        to 180: the angle to the own class and the angle to the nearest other class,
        which is 180 if there is only one class.
    """
    inputs = tf.math.l2_normalize(embeddings, axis=1)
    exchange = head.exchange
    inputs, labels = exchange.gather([inputs, labels])
    rows = locate(labels, *exchange.local_classes())
    own = tf.zeros_like(inputs[:, 0])
    other = tf.fill(tf.shape(own), tf.constant(-1.0, own.dtype))
    weight, chosen = head.arrays()["weight"], None
    if weight.sparse:  # a sparse variable must be read by rows, see `ShardedRows`
        chosen = tf.range(weight.local()[0].shape[0], dtype=tf.int64)
    tiles = head.tiles(chosen)
    for start, size, tile in zip(tiles.starts, tiles.sizes, tiles.each, strict=True):
        numbers = tf.range(start, start + size, dtype=tf.int64)
        weights = read(*tile)["weight"]
        centers = tf.math.l2_normalize(flat(weights), axis=1)
        cosines = tf.matmul(centers, inputs, transpose_b=True)
        if head.sub_centers > 1:
            cosines, _ = nearest(cosines, head.sub_centers)
        mine = numbers[:, None] == rows[None, :]
        here = tf.reduce_any(mine, axis=0)
        found = tf.reduce_max(tf.where(mine, cosines, -2.0), axis=0)
        own = tf.where(here, found, own)
        rest = tf.reduce_max(tf.where(mine, -1.0, cosines), axis=0)
        # Tiles run one at a time, so that only one tile's logits are in memory.
        with tf.control_dependencies([own]):
            other = tf.maximum(other, rest)
    own = exchange.total(own)
    other = tf.reduce_max(exchange.gather(other[None]), axis=0)
    return [
        tf.math.acos(tf.clip_by_value(exchange.own(value), -1.0, 1.0)) * (180 / math.pi)
        for value in (own, other)
    ]
