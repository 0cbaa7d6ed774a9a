"""Passes a run's metrics to files and logs; their failure doesn't end the run."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging


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
        self._output = output
        self.broken = False

    def __call__(self, write: Callable[[], Any], default: Any = None) -> Any:
        """Returns `write()`, or `default` if it fails or has failed before."""
        if self.broken:
            return default
        try:
            return write()
        except Exception as error:  # noqa: BLE001 - must not end the training
            self.broken = True
            reason = f"{type(error).__name__}: {error}"
            logging.warning(
                "Could not write %s; the training continues: %s", self._output, reason
            )
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
        call = getattr(self._callback, method)
        self._guard(functools.partial(call, *args, **kwargs))

    on_train_begin = functools.partialmethod(_call, "on_train_begin")
    on_train_batch_begin = functools.partialmethod(_call, "on_train_batch_begin")
    on_train_batch_end = functools.partialmethod(_call, "on_train_batch_end")
    on_train_end = functools.partialmethod(_call, "on_train_end")


class Sink:
    """Base class for files and logs that receive a run's metrics; ignores everything.

    Steps never decrease, except in `begin`.
    """

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
            name = getattr(sink, "folder", type(sink).__name__)
            name = getattr(sink, "output", name)
            guard = self._guards.setdefault(id(sink), Guard(name))
            guard(functools.partial(getattr(sink, method), *args))

    begin = functools.partialmethod(_call, "begin")
    scalars = functools.partialmethod(_call, "scalars")
    histogram = functools.partialmethod(_call, "histogram")
    images = functools.partialmethod(_call, "images")
    flush = functools.partialmethod(_call, "flush")
    finish = functools.partialmethod(_call, "finish")
    close = functools.partialmethod(_call, "close")
