"""Callbacks that write something after single steps: lines, traces, input images."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.images import encode
from plsc_tf.reporting.recorder import Sink
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

# Images of a step that are kept.
COUNT = 16


def only_local(path: str, option: str) -> str:
    """A path on a local disk.

    Raises:
        ValueError: it is on another store, whose files cannot be appended to.
    """
    if not files.is_local(path):
        raise ValueError(
            f"{option} appends to a file, which only a local disk can do. Received: "
            f"{path}. Leave it out, or train into a local model_save_dir and set "
            "fs_dir_for_save, to which it is copied."
        )
    return local_path(path)


class StepLines(keras.callbacks.Callback):
    """Appends a line to a file after each step.

    A resumed run appends its own lines, so a step that is repeated after a kill is in
    the file twice.

    Args:
        path: the file, on a local disk.
        line: function of the model that returns a line, or "" for none.

    Raises:
        ValueError: the file is on another store, which cannot append.
    """

    def __init__(self, path: str, line: Callable[[keras.Model], str]):
        super().__init__()
        self.path, self._line, self._file = only_local(path, "save_losses"), line, None

    def on_train_begin(self, logs=None):
        """Opens the file at its end."""
        files.make_dirs(files.parent(self.path))
        self._file = open(self.path, "a", encoding="ascii", buffering=1)

    def wants(self, step):
        """Needs the step's result only, not the model; see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Writes the step's line."""
        if line := self._line(self.model):
            self._file.write(f"{line}\n")

    def on_train_end(self, logs=None):
        """Closes the file."""
        self._file.close()


def exact_loss(model) -> str:
    """`<global step> <loss>`, as `float.fromhex` reads it; "" if it was skipped."""
    trainer = model.trainer
    if not trainer.step_result:
        return ""
    return f"{trainer.position.global_step} {trainer.step_result['loss'].hex()}"


class Traces(keras.callbacks.Callback):
    """Traces every n-th step on one worker: operations, devices and their times.

    `<folder>/plugins/profile/<time>/*.xplane.pb` is what TensorBoard's profile plug-in
    shows. The first step of a process is never traced: its graph is made there.

    Args:
        folder: of TensorBoard's logs.
        every_n_steps: steps between two traces (FastNN: profile_every_n_iters).
    """

    def __init__(self, folder: str, every_n_steps: int):
        super().__init__()
        self.folder, self.every_n_steps = folder, every_n_steps
        self._warm = self._running = False

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


class InputImages(keras.callbacks.Callback):
    """Records some images of a step, as they are fed: framed, augmented, in 0 ... 255.

    Those of the first step of a process are kept, for `jpegs`.

    Args:
        recorder: the `Recorder`.
        every_n_steps: steps between two records, the first of which is at the first
            step; 0: none.
    """

    def __init__(self, recorder: Sink, every_n_steps: int):
        super().__init__()
        self.recorder, self.every_n_steps = recorder, every_n_steps
        self._next, self._first = 0, None

    def wants(self, step):
        """Needs the batch only, not the model; see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Records where it is due."""
        step, every = self.model.trainer.position.global_step, self.every_n_steps
        due = every and (step >= self._next or step % every == 0)
        if self._first is not None and not due:
            return
        # Of the first replica's part of the step.
        local = self.model.strategy.experimental_local_results
        parts = self.model.trainer.step_batch[:2]
        images, labels = (np.asarray(local(part)[0][:COUNT]) for part in parts)
        images = np.clip(np.rint(images.astype(np.float32)), 0, 255).astype(np.uint8)
        self._first = self._first or (labels, images)
        if due:
            self._next = step + every
            self.recorder.images(step, "input", images)

    def jpegs(self) -> list[tuple[int, bytes]]:
        """[(label, JPEG)]; empty before the first step."""
        return [
            (int(label), encode(image, "JPEG", quality=90))
            for label, image in zip(*(self._first or ((), ())), strict=True)
        ]
