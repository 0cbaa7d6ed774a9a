"""Input images as the network gets them."""

import keras
import numpy as np

from plsc_tf.data.image_encoding import encode

COUNT = 16


class InputImages(keras.callbacks.Callback):
    """Records some images of a step, as they are fed: framed, augmented, in 0 ... 255.

    Args:
        recorder: the `Recorder`.
        every_n_steps: steps between two records; the first is at the first step.
    """

    def __init__(self, recorder, every_n_steps: int):
        super().__init__()
        self.recorder = recorder
        self.every_n_steps = every_n_steps
        self._next = 0

    def wants(self, step):
        """Needs the batch only, not the model; see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Records where it is due."""
        step = self.model.trainer.position.global_step
        if step < self._next and step % self.every_n_steps:
            return
        self._next = step + self.every_n_steps
        images, _ = first_images(self.model)
        self.recorder.images(step, "input", images)


class FirstImages(keras.callbacks.Callback):
    """Keeps some images of the first step of a process, as they are fed."""

    def __init__(self):
        super().__init__()
        self._images, self._labels = [], []

    def wants(self, step):
        """Needs the batch only, not the model; see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Keeps them once."""
        if not len(self._images):
            self._images, self._labels = first_images(self.model)

    def jpegs(self) -> list[tuple[int, bytes]]:
        """[(label, JPEG)]; empty before the first step."""
        pairs = zip(self._labels, self._images, strict=True)
        return [
            (int(label), encode(image, "JPEG", quality=90)) for label, image in pairs
        ]


def first_images(model) -> tuple[np.ndarray, np.ndarray]:
    """The first images of the first replica's part of the step, and their labels.

    Args:
        model: the `Classifier`, in a step.

    Returns:
        uint8 `[N, h, w, 3]` and int `[N]`, N ≤ `COUNT`.
    """
    images, labels = (
        np.asarray(model.strategy.experimental_local_results(part)[0][:COUNT])
        for part in model.trainer.step_batch[:2]
    )
    images = np.clip(np.rint(images.astype(np.float32)), 0, 255)
    return images.astype(np.uint8), labels
