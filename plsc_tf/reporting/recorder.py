"""Records metrics and steps of a run; a failing output does not end the run."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.requirements import require
from plsc_tf.storage import files, local, transfer
from plsc_tf.storage.paths import local_path

# Number of images to record per step.
COUNT = 16


class Guard:
    """Calls functions without letting their exceptions end the training.

    The first failure is logged; after that, further calls do nothing. Otherwise, a full
    disk would cause a warning at every step.

    Args:
        output: the name of the output, for the log.

    Attributes:
        broken: whether a call has failed.
    """

    def __init__(self, output: str):
        self._output, self.broken = output, False

    def __call__(self, write: Callable[[], Any], default: Any = None) -> Any:
        """Returns `write()`, or `default` if it fails or has failed before."""
        if self.broken:
            return default
        try:
            return write()
        except Exception as error:  # noqa: BLE001 - must not end the training
            self.broken = True
            reason = f"the training continues: {type(error).__name__}: {error}"
            logging.warning("Could not write %s; %s", self._output, reason)
            return default


class StepCallback(keras.callbacks.Callback):
    """A callback that needs only a step's batch or result, not the model after it."""

    def wants(self, step):
        """Returns False: no step has to be a separate call; see `several_steps`."""
        return False


class GuardedCallback(keras.callbacks.Callback):
    """Runs a reporting callback in a `Guard`.

    Args:
        callback: the Keras callback; it must have `wants` (see `several_steps`).
        output: the name of its output, for the log.
    """

    def __init__(self, callback: keras.callbacks.Callback, output: str):
        super().__init__()
        self._callback, self._guard = callback, Guard(output)

    def set_model(self, model):
        """Sets the model for both callbacks; see `keras.callbacks.Callback`."""
        super().set_model(model)
        self._callback.set_model(model)

    def wants(self, step):
        """Returns whether the callback needs the model after this step."""
        return not self._guard.broken and self._callback.wants(step)

    def _call(self, method, *args, **kwargs):
        """Calls the callback's method in the guard."""
        self._guard(functools.partial(getattr(self._callback, method), *args, **kwargs))

    on_train_begin = functools.partialmethod(_call, "on_train_begin")
    on_train_batch_begin = functools.partialmethod(_call, "on_train_batch_begin")
    on_train_batch_end = functools.partialmethod(_call, "on_train_batch_end")
    on_train_end = functools.partialmethod(_call, "on_train_end")


class Sink:
    """Base class for files and logs that receive a run's metrics; ignores everything.

    Steps never decrease, except in `begin`.

    Attributes:
        output: what the sink writes, for the log.
    """

    output = "metrics"

    def begin(self, step: int) -> None:
        """Removes everything after `step`, from which the run continues."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Records `{name: number}`."""

    def histogram(self, step: int, name: str, values: np.ndarray) -> None:
        """Records the distribution of `values`."""

    def images(self, step: int, name: str, images: np.ndarray) -> None:
        """Records images, uint8 `[N, height, width, 3]`."""

    def flush(self) -> None:
        """Makes everything recorded so far visible to readers."""

    def finish(self, paths: Sequence[str]) -> None:
        """Stores those of the files that exist; only complete runs call it."""

    def close(self) -> None:
        """Closes the log; `begin` reopens it."""


class Recorder:
    """Passes scalars, histograms and images to sinks; has the methods of `Sink`.

    If a sink fails, it receives nothing more, and the training continues.

    Args:
        sinks: the `Sink`s.
    """

    def __init__(self, sinks: Sequence[Sink] = ()):
        self.sinks = list(sinks)
        self._guards: dict[int, Guard] = {}

    def _call(self, method, *args):
        """Calls the method of each sink in the sink's guard."""
        for sink in self.sinks:
            guard = self._guards.setdefault(id(sink), Guard(sink.output))
            guard(functools.partial(getattr(sink, method), *args))

    begin = functools.partialmethod(_call, "begin")
    scalars = functools.partialmethod(_call, "scalars")
    histogram = functools.partialmethod(_call, "histogram")
    images = functools.partialmethod(_call, "images")
    flush = functools.partialmethod(_call, "flush")
    finish = functools.partialmethod(_call, "finish")
    close = functools.partialmethod(_call, "close")


def only_local(path: str, option: str) -> str:
    """Returns the path without a scheme, after checking that it is local.

    Raises:
        ValueError: it is on a remote store, which cannot append to files.
    """
    advice = "Turn it off, or train into a local model_save_dir and set fs_dir_for_save"
    require(files.is_local(path), f"{option} requires a local disk", advice, path=path)
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
        self._file = open(self.path, "a", buffering=1, opener=local.without_links)

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
        self._local = transfer.LocalFolder(folder, temporary=True)
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

    Args:
        recorder: the `Recorder`.
        every_n_steps: number of steps between two records; the first step of a process
            is recorded too.
    """

    def __init__(self, recorder: Recorder, every_n_steps: int):
        super().__init__()
        self.recorder, self.every_n_steps = recorder, every_n_steps
        self._begun = False

    def on_train_batch_end(self, batch, logs=None):
        """Records the images if they are due."""
        step = self.model.trainer.position.global_step
        if self._begun and step % self.every_n_steps:
            return
        self._begun = True
        # Use the first replica's part of the batch.
        local = self.model.strategy.experimental_local_results
        images = np.asarray(local(self.model.trainer.step_batch[0])[0][:COUNT])
        images = np.clip(np.rint(images.astype(np.float32)), 0, 255).astype(np.uint8)
        self.recorder.images(step, "input", images)
