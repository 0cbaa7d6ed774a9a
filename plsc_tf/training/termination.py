"""Ending a training from outside, without losing its steps."""

from __future__ import annotations

import signal

import keras
from absl import logging

# What a shell reports for a process that SIGTERM has ended.
STATUS = 128 + signal.SIGTERM


class Terminated(SystemExit):
    """Ends the process with the status of SIGTERM."""

    def __init__(self) -> None:
        super().__init__(STATUS)


class Termination(keras.callbacks.Callback):
    """Ends a training between two steps when a signal asks for it.

    Schedulers send SIGTERM some seconds before they kill; Ctrl-C is SIGINT. In the
    middle of a step the weights may be ahead of the count of steps, so the signal
    waits for its end; elsewhere it works at once. In a cluster all workers end after
    the same step, the next one that begins.

    Attributes:
        in_step: whether a step is under way.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_step = False
        self._training = False
        self._before: dict = {}
        self._requested = None

    def listen(self) -> None:
        """Takes over SIGTERM and SIGINT; call it in the main thread."""
        endings = {signal.SIGTERM: Terminated, signal.SIGINT: KeyboardInterrupt}
        for number, ending in endings.items():
            before = signal.signal(number, lambda *_, e=ending: self._request(e))
            self._before.setdefault(number, before)

    def listen_again(self) -> None:
        """Takes them back from TensorFlow's servers, which take SIGTERM silently."""
        if self._before:
            self.listen()

    def stop_listening(self) -> None:
        """Restores the handlers of before; call it in the main thread."""
        for number, before in self._before.items():
            # A handler that is not Python's cannot be set from here.
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}

    def wants(self, step: int) -> bool:
        """A training ends between two calls of steps, see `several_steps`."""
        return False

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """From here on the model is being changed."""
        self.in_step = True
        if self._requested is not None and self._votes() is not None:
            self._votes().stop()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Ends the training if a signal came during the step."""
        calls = None if self.model is None else self.model.trainer.calls
        if calls is not None and calls.unreported:
            return  # the weights are those of a later step
        self.in_step = False
        if self._requested is None:
            return
        if self._votes() is None:
            raise self._requested
        if self.model.trainer.stop_voted:
            self._votes().end()
            raise self._requested

    def on_train_begin(self, logs: dict | None = None) -> None:
        """From here on the workers of a cluster meet in every step."""
        self._training = True

    def on_train_end(self, logs: dict | None = None) -> None:
        """There is no further step."""
        self._training = False

    def _request(self, ending):
        insists = self._requested is KeyboardInterrupt and ending is KeyboardInterrupt
        self._requested = ending
        waits = self.in_step or (self._training and self._votes() is not None)
        if not waits or insists:
            raise ending
        logging.warning("The training ends after this step.")

    def _votes(self):
        return self.model.trainer.votes if self.model is not None else None
