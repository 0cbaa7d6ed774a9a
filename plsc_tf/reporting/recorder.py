"""Passes the figures of a run on to files and logs, whose failure does not end it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging


class Guard:
    """Calls functions whose failure costs what they write, and not the training.

    The first failure is logged and nothing more is tried, so that a disk that is full
    does not fill the log at every step.

    Args:
        what: what is written, for the log.

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
        except Exception as error:  # noqa: BLE001 - nothing here is worth a training
            self.broken = True
            logging.warning(
                "Could not write %s; the training is not affected: %s: %s",
                self.what,
                type(error).__name__,
                str(error).strip() or "no message",
            )
            return default


class GuardedCallback(keras.callbacks.Callback):
    """A callback that only reports on the run, in a `Guard`.

    Args:
        callback: the Keras callback; it must have `wants`, see `several_steps`.
        what: what it writes, for the log.
    """

    def __init__(self, callback: keras.callbacks.Callback, what: str):
        super().__init__()
        self._callback = callback
        self._guard = Guard(what)

    def set_model(self, model):
        """See `keras.callbacks.Callback`."""
        super().set_model(model)
        self._callback.set_model(model)

    def wants(self, step):
        """Whether the callback looks at the model after this step."""
        return not self._guard.broken and self._callback.wants(step)

    def on_train_begin(self, logs=None):
        """Guards the callback's own method, as those below do."""
        self._guard(lambda: self._callback.on_train_begin(logs))

    def on_train_batch_begin(self, batch, logs=None):
        """Guards the callback's own method."""
        self._guard(lambda: self._callback.on_train_batch_begin(batch, logs))

    def on_train_batch_end(self, batch, logs=None):
        """Guards the callback's own method."""
        self._guard(lambda: self._callback.on_train_batch_end(batch, logs))

    def on_train_end(self, logs=None):
        """Guards the callback's own method."""
        self._guard(lambda: self._callback.on_train_end(logs))


class Sink:
    """A file or log that takes the figures of a run; this one ignores them.

    Steps never go back, except by `begin`.
    """

    def begin(self, step: int) -> None:
        """Removes what is later than `step`, after which the run continues."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Takes `{name: number}`."""

    def histogram(self, step: int, name: str, values: np.ndarray) -> None:
        """Takes numbers whose distribution matters."""

    def images(self, step: int, name: str, pictures: np.ndarray) -> None:
        """Takes images, uint8 `[N, height, width, 3]`."""

    def flush(self) -> None:
        """Writes everything to where others can read it."""

    def close(self) -> None:
        """Ends the log; `begin` opens it again."""


class Recorder(Sink):
    """Passes scalars, histograms and images on to sinks.

    A sink that fails gets nothing more; the training goes on.

    Args:
        sinks: `Sink`s.
    """

    def __init__(self, sinks: Sequence[Sink] = ()):
        self.sinks = list(sinks)
        self._guards: dict[int, Guard] = {}

    def begin(self, step):
        """See `Sink`, as for the methods below; 0 for a new run."""
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
