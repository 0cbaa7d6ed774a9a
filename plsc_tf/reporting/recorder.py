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
        what: the name of the output, for the log.

    Attributes:
        broken: whether a call has failed.
    """

    def __init__(self, what: str):
        self.what = what
        self.broken = False

    def __call__(self, write: Callable[[], Any], default: Any = None) -> Any:
        """Returns `write()`, or `default` if it fails or has failed before."""
        if self.broken:
            return default
        try:
            return write()
        except Exception as error:  # noqa: BLE001 - must not end the training
            self.broken = True
            logging.warning(
                "Could not write %s; the training is not affected: %s: %s",
                self.what,
                type(error).__name__,
                str(error).strip() or "no message",
            )
            return default


class GuardedCallback(keras.callbacks.Callback):
    """Runs a reporting callback in a `Guard`.

    Args:
        callback: the Keras callback; it must have `wants` (see `several_steps`).
        what: the name of its output, for the log.
    """

    def __init__(self, callback: keras.callbacks.Callback, what: str):
        super().__init__()
        self._callback = callback
        self._guard = Guard(what)

    def set_model(self, model):
        """Sets the model for both callbacks; see `keras.callbacks.Callback`."""
        super().set_model(model)
        self._callback.set_model(model)

    def wants(self, step):
        """Returns whether the callback needs the model after this step."""
        return not self._guard.broken and self._callback.wants(step)

    def on_train_begin(self, logs=None):
        """Calls the callback's method in the guard."""
        self._guard(lambda: self._callback.on_train_begin(logs))

    def on_train_batch_begin(self, batch, logs=None):
        """Calls the callback's method in the guard."""
        self._guard(lambda: self._callback.on_train_batch_begin(batch, logs))

    def on_train_batch_end(self, batch, logs=None):
        """Calls the callback's method in the guard."""
        self._guard(lambda: self._callback.on_train_batch_end(batch, logs))

    def on_train_end(self, logs=None):
        """Calls the callback's method in the guard."""
        self._guard(lambda: self._callback.on_train_end(logs))


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

    def images(self, step: int, name: str, pictures: np.ndarray) -> None:
        """Records images, uint8 `[N, height, width, 3]`."""

    def flush(self) -> None:
        """Makes everything recorded so far visible to readers."""

    def close(self) -> None:
        """Closes the log; `begin` reopens it."""


class Recorder(Sink):
    """Passes scalars, histograms and images to sinks.

    If a sink fails, it receives nothing more, and the training continues.

    Args:
        sinks: the `Sink`s.
    """

    def __init__(self, sinks: Sequence[Sink] = ()):
        self.sinks = list(sinks)
        self._guards: dict[int, Guard] = {}

    def begin(self, step):
        """See `Sink`; `step` is 0 for a new run."""
        self._each("begin", step)

    def scalars(self, step, values):
        """See `Sink`."""
        self._each("scalars", step, values)

    def histogram(self, step, name, values):
        """See `Sink`."""
        self._each("histogram", step, name, values)

    def images(self, step, name, pictures):
        """See `Sink`."""
        self._each("images", step, name, pictures)

    def flush(self):
        """See `Sink`."""
        self._each("flush")

    def close(self):
        """See `Sink`."""
        self._each("close")

    def _each(self, method, *args):
        for sink in self.sinks:
            what = getattr(sink, "folder", type(sink).__name__)
            guard = self._guards.setdefault(id(sink), Guard(what))
            guard(functools.partial(getattr(sink, method), *args))
