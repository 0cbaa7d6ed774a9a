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
        self._broken = False

    def wants(self, step):
        """A step that is traced has a call of its own, see `several_steps`."""
        return step % self.every_n_steps == 0 or (step + 1) % self.every_n_steps == 0

    def on_train_batch_begin(self, batch, logs=None):
        """Begins a trace where one is due."""
        step = self.model.position.global_step + 1
        if self._warm and step % self.every_n_steps == 0:
            start = tf.profiler.experimental.start
            self._running = self._guarded(lambda: start(self.folder))

    def on_train_batch_end(self, batch, logs=None):
        """Ends it."""
        self._warm = not self._broken
        if self._running:
            self._running = False
            if self._guarded(tf.profiler.experimental.stop):
                step = self.model.position.global_step
                logging.info("Step %d is traced in %s", step, self.folder)

    def _guarded(self, function):
        """A trace is nothing that a training fails for; returns whether it worked."""
        try:
            function()
            return True
        except tf.errors.OpError as error:
            logging.warning("No trace is written: %s", error.message)
            self._broken, self._warm = True, False
            return False
