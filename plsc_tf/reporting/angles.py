"""Histograms of the angles between embeddings and class centers."""

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.heads.angles import angles
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
