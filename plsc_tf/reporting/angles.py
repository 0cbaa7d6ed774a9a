"""Histograms of the angles between embeddings and class centers."""

import math

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.heads.base import Head
from plsc_tf.heads.kernels import flat, nearest, pick_nearest
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
        self._function = tf.function(self._distributed, autograph=False)

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
        strategy = self.model.strategy
        local = strategy.experimental_local_results(self._function(batch))
        own, other, real = gather(strategy, [np.asarray(part) for part in local]).T
        return own[real > 0], other[real > 0]

    def _distributed(self, batch):
        # Use float32, like `Classifier.embed`, because half precision may overflow.
        with in_float32(self.model.backbone):
            return self.model.strategy.run(self._replica, args=batch)

    def _replica(self, images, labels, *weights):
        embeddings = tf.cast(self.model(images, training=False), keras.config.floatx())
        real = tf.cast(weights[-1], embeddings.dtype)
        return tf.stack([*angles(self.model.head, embeddings, labels), real], axis=1)


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
    weight, chosen = head.arrays()["weight"], None
    if weight.sparse:  # a sparse variable must be read by rows, see `ShardedRows`
        chosen = tf.range(weight.local()[0].shape[0], dtype=tf.int64)
    tiles = head.tiles(chosen)
    center = pick_nearest(tiles.pick(rows)["weight"], inputs)
    cosine = tf.reduce_sum(tf.math.l2_normalize(center, axis=1) * inputs, axis=1)
    own, other = tf.where(rows >= 0, cosine, 0.0), -tf.ones_like(cosine)
    for start, size, tile in zip(tiles.starts, tiles.sizes, tiles.each, strict=True):
        # Tiles run one at a time, so that only one tile's logits are in memory.
        with tf.control_dependencies([other]):
            centers = tf.math.l2_normalize(flat(read(*tile)["weight"]), axis=1)
            cosines = tf.matmul(centers, inputs, transpose_b=True)
            cosines, _ = nearest(cosines, head.sub_centers)
            numbers = tf.range(start, start + size, dtype=tf.int64)
            rest = tf.where(numbers[:, None] == rows, -1.0, cosines)
            other = tf.maximum(other, tf.reduce_max(rest, axis=0))
    own = exchange.total(own)
    other = tf.reduce_max(exchange.gather(other[None]), axis=0)
    cosines = (tf.clip_by_value(exchange.own(one), -1.0, 1.0) for one in (own, other))
    return [tf.math.acos(one) * (180 / math.pi) for one in cosines]
