"""Histograms of the angles that margins act on."""

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.heads.angles import angles
from plsc_tf.parallel.strategy import gather

NAMES = ("angles/own_centre", "angles/nearest_other")


class AngleHistograms(keras.callbacks.Callback):
    """Records θ to the own class center and to the nearest other one, in degrees.

    Every so many steps the batch goes through the network once more, as at inference
    and without gradients; the class weights stay where they are. All workers of a
    cluster must have it.

    Args:
        recorder: the `Recorder`.
        every_n_steps: steps between two histograms.
    """

    def __init__(self, recorder, every_n_steps):
        super().__init__()
        self.recorder, self.every_n_steps = recorder, every_n_steps
        self._function = None

    def wants(self, step):
        """Whether angles are measured after this step, see `several_steps`."""
        return step % self.every_n_steps == 0

    def on_train_batch_end(self, batch, logs=None):
        """Records where it is due."""
        step = self.model.trainer.position.global_step
        if step % self.every_n_steps == 0 and self.model.trainer.step_result:
            angles_to = self.measure(self.model.trainer.step_batch)
            for name, degrees in zip(NAMES, angles_to, strict=True):
                self.recorder.histogram(step, name, degrees)
                self.recorder.scalars(step, {f"{name}_mean": degrees.mean()})

    def measure(self, batch):
        """(own, nearest other) angles of a batch in degrees, float32 `[examples]`.

        Args:
            batch: per-replica tensors, of which padding weighs 0.
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
        # As `Classifier.embed`: what overflows in half precision would be no angle.
        with in_float32(self.model.backbone):
            return self.model.strategy.run(self._replica, args=batch)

    def _replica(self, images, labels, *weights):
        del weights
        embeddings = tf.cast(self.model(images, training=False), keras.config.floatx())
        return angles(self.model.head, embeddings, labels)
