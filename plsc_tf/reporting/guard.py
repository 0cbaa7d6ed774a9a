"""Keeps a failure in what a run writes about itself from ending the run."""

import keras
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

    def __init__(self, what):
        self.what = what
        self.broken = False

    def __call__(self, write, default=None):
        """Returns what `write()` returns, or `default` where it fails or has failed."""
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

    def __init__(self, callback, what):
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
