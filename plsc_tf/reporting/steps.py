"""Callbacks that record individual steps: lines, traces and input images."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.images import encode
from plsc_tf.reporting.recorder import Recorder, StepCallback
from plsc_tf.storage import files, local
from plsc_tf.storage.paths import local_path
from plsc_tf.storage.transfer import LocalFolder

# Number of images to record per step.
COUNT = 16


def only_local(path: str, option: str) -> str:
    """Returns the path without a scheme, after checking that it is local.

    Raises:
        ValueError: it is on a remote store, which cannot append to files.
    """
    if not files.is_local(path):
        raise ValueError(
            f"{option} requires a local disk. Received: {path}. Turn it off, or train "
            "into a local model_save_dir and set fs_dir_for_save to copy the files."
        )
    return local_path(path)


class StepLines(StepCallback):
    """Appends a line to a file after each step.

    A resumed run appends to the same file, so a step that is repeated after a kill
    appears twice.

    Args:
        path: the file, on a local disk.
        line: function that takes the model and returns a line, or "" to write none.

    Raises:
        ValueError: the file is on a remote store, which cannot append.
    """

    def __init__(self, path: str, line: Callable[[keras.Model], str]):
        super().__init__()
        self.path, self._line, self._file = only_local(path, "save_losses"), line, None

    def on_train_begin(self, logs=None):
        """Opens the file for appending."""
        files.make_dirs(files.parent(self.path))
        self._file = open(
            self.path,
            "a",
            encoding="ascii",
            buffering=1,
            opener=local.without_links,
        )

    def on_train_batch_end(self, batch, logs=None):
        """Writes the step's line."""
        if line := self._line(self.model):
            self._file.write(f"{line}\n")

    def on_train_end(self, logs=None):
        """Closes the file."""
        self._file.close()


def exact_loss(model) -> str:
    """Returns `<global step> <loss>`, or "" if the step was skipped.

    The loss is in hexadecimal, for `float.fromhex`.
    """
    trainer = model.trainer
    if not trainer.step_result:
        return ""
    return f"{trainer.position.global_step} {trainer.step_result['loss'].hex()}"


class Traces(keras.callbacks.Callback):
    """Traces the operations and devices of every n-th step on one worker.

    Writes `<folder>/plugins/profile/<time>/*.xplane.pb` for TensorBoard's profile
    plugin. The first step in a process is never traced, because it builds the graph.

    Args:
        folder: TensorBoard's log folder.
        every_n_steps: number of steps between two traces (FastNN:
            profile_every_n_iters).
    """

    def __init__(self, folder: str, every_n_steps: int):
        super().__init__()
        self.folder, self.every_n_steps = folder, every_n_steps
        self._local = LocalFolder(folder)
        self._warm = self._running = False

    def wants(self, step):
        """Returns True to run a traced step in a separate call; see `several_steps`."""
        return step % self.every_n_steps == 0 or (step + 1) % self.every_n_steps == 0

    def on_train_batch_begin(self, batch, logs=None):
        """Starts a trace if one is due."""
        step = self.model.trainer.position.global_step + 1
        if self._warm and step % self.every_n_steps == 0:
            tf.profiler.experimental.start(self._local.path)
            self._running = True

    def on_train_batch_end(self, batch, logs=None):
        """Ends the trace, if any."""
        self._warm = True
        if self._running:
            self._running = False
            tf.profiler.experimental.stop()
            self._local.upload()
            step = self.model.trainer.position.global_step
            logging.info("Step %d is traced in %s", step, self.folder)


class InputImages(StepCallback):
    """Records some of a step's input images after framing and augmentation.

    The images of the process's first step are kept for `jpegs`.

    Args:
        recorder: the `Recorder`.
        every_n_steps: number of steps between two records, starting with the first
            step; 0 records nothing.
    """

    def __init__(self, recorder: Recorder, every_n_steps: int):
        super().__init__()
        self.recorder, self.every_n_steps = recorder, every_n_steps
        self._next, self._first = 0, None

    def on_train_batch_end(self, batch, logs=None):
        """Records the images if they are due."""
        step, every = self.model.trainer.position.global_step, self.every_n_steps
        due = every and (step >= self._next or step % every == 0)
        if self._first is not None and not due:
            return
        # Use the first replica's part of the batch.
        local = self.model.strategy.experimental_local_results
        parts = self.model.trainer.step_batch[:2]
        images, labels = (np.asarray(local(part)[0][:COUNT]) for part in parts)
        images = np.clip(np.rint(images.astype(np.float32)), 0, 255).astype(np.uint8)
        self._first = self._first or (labels, images)
        if due:
            self._next = step + every
            self.recorder.images(step, "input", images)

    def jpegs(self) -> list[tuple[int, bytes]]:
        """Returns [(label, JPEG)] of the first step; empty before it."""
        return [
            (int(label), encode(image, "JPEG", quality=90))
            for label, image in zip(*(self._first or ((), ())), strict=True)
        ]
