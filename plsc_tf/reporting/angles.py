"""Histograms of the angles that margins act on."""

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.heads.angles import angles
from plsc_tf.parallel.strategy import gather


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
        self.recorder = recorder
        self.every_n_steps = every_n_steps
        self._function = None

    def wants(self, step):
        """Whether angles are measured after this step, see `several_steps`."""
        return step % self.every_n_steps == 0

    def on_train_batch_end(self, batch, logs=None):
        """Records where it is due."""
        step = self.model.trainer.position.global_step
        if step % self.every_n_steps == 0 and self.model.trainer.step_result:
            own, other = self.measure(self.model.trainer.step_batch)
            self.recorder.histogram(step, "angles/own_centre", own)
            self.recorder.histogram(step, "angles/nearest_other", other)
            self.recorder.scalars(
                step,
                {
                    "angles/own_centre_mean": own.mean(),
                    "angles/nearest_other_mean": other.mean(),
                },
            )

    def measure(self, batch):
        """(own, nearest other) angles of a batch in degrees, float32 `[examples]`.

        Args:
            batch: per-replica tensors, of which padding weighs 0.
        """
        if self._function is None:
            self._function = tf.function(self._distributed, autograph=False)
        angles_of_batch = self._function(batch)
        columns = [
            gather(self.model.strategy, self._local(value)).reshape(-1)
            for value in (*angles_of_batch, batch[-1])
        ]
        own, other, real = columns
        return own[real > 0], other[real > 0]

    def _local(self, value):
        results = self.model.strategy.experimental_local_results(value)
        return [np.asarray(one)[None] for one in results]

    def _distributed(self, batch):
        # As `Classifier.embed`: what overflows in half precision would be no angle.
        with in_float32(self.model.backbone):
            return self.model.strategy.run(self._replica, args=batch)

    def _replica(self, images, labels, *weights):
        del weights
        embeddings = tf.cast(self.model(images, training=False), keras.config.floatx())
        return angles(self.model.head, embeddings, labels)
