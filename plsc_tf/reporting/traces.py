"""Traces of single steps, for TensorBoard's profiler (FastNN: ProfilerHook)."""

import keras
import tensorflow as tf
from absl import logging


class Traces(keras.callbacks.Callback):
    """Traces every n-th step on one worker: operations, devices and their times.

    `<folder>/plugins/profile/<time>/*.xplane.pb` is what TensorBoard's profile plug-in
    shows. The first step of a process is never traced: its graph is made there.

    Args:
        folder: of TensorBoard's logs.
        every_n_steps: steps between two traces (FastNN: profile_every_n_iters).
    """

    def __init__(self, folder, every_n_steps):
        super().__init__()
        self.folder = folder
        self.every_n_steps = every_n_steps
        self._warm = False
        self._running = False

    def wants(self, step):
        """A step that is traced has a call of its own, see `several_steps`."""
        return step % self.every_n_steps == 0 or (step + 1) % self.every_n_steps == 0

    def on_train_batch_begin(self, batch, logs=None):
        """Begins a trace where one is due."""
        step = self.model.trainer.position.global_step + 1
        if self._warm and step % self.every_n_steps == 0:
            tf.profiler.experimental.start(self.folder)
            self._running = True

    def on_train_batch_end(self, batch, logs=None):
        """Ends it."""
        self._warm = True
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()
            step = self.model.trainer.position.global_step
            logging.info("Step %d is traced in %s", step, self.folder)
