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
        step = self.model.trainer.position.global_step
        if step < self._next and step % self.every_n_steps:
            return
        self._next = step + self.every_n_steps
        images, _ = fed(self.model)
        self.recorder.images(step, "input", images)


class FirstImages(keras.callbacks.Callback):
    """Keeps some images of the first step of a process, as they are fed.

    Attributes:
        images: uint8 `[N, h, w, 3]`, N ≤ `PICTURES`; None before the first step.
        labels: int `[N]`.
    """

    def __init__(self):
        super().__init__()
        self.images = self.labels = None

    def wants(self, step):
        """Pictures alone: the model is not looked at, see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Keeps them once."""
        if self.images is None:
            self.images, self.labels = fed(self.model)


def fed(model):
    """(images, labels) of the first replica's part of the step, the first of them.

    Args:
        model: the `Classifier`, in a step.

    Returns:
        uint8 `[N, h, w, 3]` and int `[N]`, N ≤ `PICTURES`.
    """
    images, labels = (
        np.asarray(model.strategy.experimental_local_results(part)[0][:PICTURES])
        for part in model.trainer.step_batch[:2]
    )
    images = np.clip(np.rint(images.astype(np.float32)), 0, 255)
    return images.astype(np.uint8), labels
