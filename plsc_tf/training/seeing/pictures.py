"""Looks at the input as the network gets it."""

import keras
import numpy as np

PICTURES = 16


class InputImages(keras.callbacks.Callback):
    """Records some images of a step, as they are fed: framed, augmented, in 0 … 255.

    Args:
        recorder: the `Recorder`.
        every_n_steps: steps between two looks; the first is at the first step.
    """

    def __init__(self, recorder, every_n_steps):
        super().__init__()
        self.recorder = recorder
        self.every_n_steps = every_n_steps
        self._next = 0

    def wants(self, step):
        """Pictures alone: the model is not looked at, see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Records where a look is due."""
        step = self.model.position.global_step
        if step < self._next and step % self.every_n_steps:
            return
        self._next = step + self.every_n_steps
        images = self.model.strategy.experimental_local_results(
            self.model.step_batch[0]
        )[0]
        shown = np.asarray(images[:PICTURES], np.float32)
        shown = np.clip(np.rint(shown), 0, 255).astype(np.uint8)
        self.recorder.images(step, "input", shown)
