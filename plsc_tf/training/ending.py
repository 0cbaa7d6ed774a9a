"""Ends training early: after a signal, a vote of the workers, or an error.

One worker of a cluster cannot stop by itself, because the others would wait for it in
the next step. So each worker adds its votes to every step. They are summed over the
workers together with the flag for NaN or infinity, and all workers act on the sum.
"""

import signal
from collections.abc import Sequence

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import catalog
from plsc_tf.parallel import rows, worker_lost
from plsc_tf.parallel.group import Group
from plsc_tf.storage import files
from plsc_tf.training.circular import Checkpoint, Classifier

STOP, ABORT = range(2)


class EndedElsewhereError(RuntimeError):
    """Raised when another worker has ended the training of all workers."""

    exit_status = worker_lost.LOST_STATUS


class Votes:
    """The votes of one worker, and the outcome of all workers' votes.

    Args:
        group: the `plsc_tf.parallel.group.Group` of the workers.

    Attributes:
        ended: True once all workers end the training.
    """

    def __init__(self, group: Group) -> None:
        self.group, self.ended = group, False
        self._error: Exception | None = None
        self._votes = rows.outside_scope(
            lambda: tf.Variable(tf.zeros([2]), trainable=False, name="votes")
        )

    def stop(self) -> None:
        """Votes to end the training after the next step."""
        self._votes[STOP].assign(1.0)

    def abort(self, error: Exception) -> None:
        """Votes to discard the next step and to end the training.

        Args:
            error: the reason why this worker cannot take part in the step.
        """
        self._error = error
        self._votes[ABORT].assign(1.0)

    def own(self) -> list[tf.Tensor]:
        """Returns this worker's votes, two float scalars; works in replica context."""
        return tf.unstack(tf.convert_to_tensor(self._votes))

    def outcome(self, sums: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the outcome of a step's votes.

        Args:
            sums: the sums of all replicas' `own()`.

        Returns:
            bool scalars `{"stop", "aborted"}`.
        """
        return {"stop": sums[STOP] > 0, "aborted": sums[ABORT] > 0}

    def check_abort(self, aborted: bool) -> None:
        """Raises an error if the step was aborted.

        Args:
            aborted: whether a worker voted to abort the step.

        Raises:
            Exception: the error passed to `abort`, if this worker called it.
            EndedElsewhereError: another worker aborted; contains its error message.
        """
        if not aborted:
            return
        error = self._error
        messages = self.group.gather("why aborted", error and str(error))
        self.ended = True
        if error is not None:
            raise error
        reasons = [f"Worker {i}: {text}" for i, text in enumerate(messages) if text]
        raise EndedElsewhereError(" ".join(reasons))


# The exit status that a shell reports for a process ended by SIGTERM.
STATUS = 128 + signal.SIGTERM


class Termination(keras.callbacks.Callback):
    """Ends training between two steps after SIGTERM or SIGINT.

    Schedulers send SIGTERM some seconds before they kill a process; Ctrl-C sends
    SIGINT. During a step, the weights may be ahead of the step count, so the signal
    takes effect at the end of the step. Between two steps of an epoch, it takes effect
    before the next one: an exception in the middle of TensorFlow's calls can corrupt
    memory. While weights and averages are exchanged, it waits too. At other times it
    takes effect at once. In a cluster, all workers end after the same step, the next
    one to begin.

    Attributes:
        in_step: True while a step runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_step = False
        self._waits = False  # whether signals wait between two steps
        self._before: dict = {}
        self._requested = None

    def listen(self) -> None:
        """Installs the handlers of SIGTERM and SIGINT; call it in the main thread."""
        endings = {signal.SIGTERM: SystemExit(STATUS), signal.SIGINT: KeyboardInterrupt}
        for number, ending in endings.items():
            before = signal.signal(number, lambda *_, e=ending: self._request(e))
            self._before.setdefault(number, before)

    def listen_again(self) -> None:
        """Reinstalls the handlers after TensorFlow's servers have replaced them.

        These servers silently install their own SIGTERM handler.
        """
        if self._before:
            self.listen()

    def stop_listening(self) -> None:
        """Restores the previous handlers; call it in the main thread."""
        for number, before in self._before.items():
            # A handler that was not installed from Python is None and cannot be
            # restored.
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}

    def wants(self, step: int) -> bool:
        """Returns whether to end, before which no step is launched ahead.

        See `several_steps`.
        """
        return self._requested is not None and self._votes() is None

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Ends the training if a signal has arrived; in a cluster, votes for it.

        Raises:
            SystemExit: after SIGTERM.
            KeyboardInterrupt: after SIGINT.
        """
        if self._requested is not None and self._votes() is not None:
            self._votes().stop()
        elif self._requested is not None and not self.in_step and not self._is_ahead():
            raise self._requested
        self.in_step = True

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Makes signals wait for the next step."""
        self._waits = True

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Ends the training if a signal has arrived; further ones work at once.

        Raises:
            SystemExit: after SIGTERM.
            KeyboardInterrupt: after SIGINT.
        """
        self._waits = self._votes() is not None
        if self._requested is not None and not self._waits:
            raise self._requested

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Ends the training if a signal has arrived.

        Raises:
            SystemExit: after SIGTERM.
            KeyboardInterrupt: after SIGINT.
        """
        if self._is_ahead():
            return
        self.in_step = False
        if self._requested is None:
            return
        if self._votes() is None:
            raise self._requested
        if self.model.trainer.stop_requested:
            self._votes().ended = True
            raise self._requested

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Makes signals wait for a vote in a cluster, now that steps can follow."""
        self._waits = self._votes() is not None

    def on_train_end(self, logs: dict | None = None) -> None:
        """Makes signals take effect at once again, as no further step follows."""
        self._waits = False

    def _request(self, ending):
        insists = self._requested is KeyboardInterrupt and ending is KeyboardInterrupt
        self._requested = ending
        averages = self.model and getattr(self.model.trainer.updater, "averages", None)
        exchanging = averages and averages.exchanging
        if not exchanging and (insists or not (self.in_step or self._waits)):
            raise ending
        logging.warning("The training ends after this step.")

    def _is_ahead(self):
        """Returns whether the weights already belong to a later step."""
        calls = None if self.model is None else self.model.trainer.calls
        return calls is not None and bool(calls.unreported)

    def _votes(self):
        return self.model.trainer.votes if self.model is not None else None


def rescue(
    model: Classifier,
    checkpoints: Checkpoint,
    termination: Termination,
    before: int,
    error: BaseException,
) -> None:
    """Saves the finished steps after any error or signal that ended the training.

    After an interruption in the middle of a step, the weights may be ahead of the step
    count. In this case nothing is saved, and the log says which steps are lost.

    Args:
        model: the `Classifier`.
        checkpoints: the `Checkpoint`.
        termination: the `Termination`.
        before: global step at which this process began.
        error: the exception that ended the training.
    """
    step, save_dir = model.trainer.position.global_step, checkpoints.directory
    votes = model.trainer.votes
    if votes is not None and isinstance(error, FloatingPointError):
        votes.ended = True  # all workers raise the same error
    if votes is not None and not votes.ended:
        if checkpoints.writing:
            checkpoints.lock.keep_until_exit()
        return  # saving needs all workers, and the others are still in a step
    if termination.in_step and isinstance(error, KeyboardInterrupt):
        _log_loss(model, checkpoints, "Interrupted in the middle of a step.")
        return
    try:
        if step > before and checkpoints.saved_step != step:
            epoch = model.trainer.position.epoch
            ended = epoch and not model.trainer.position.step  # but is not saved yet
            checkpoints.save(str(epoch - 1) if ended else f"step_{step:08d}")
        checkpoints.wait()
        saved_ones = catalog.find_all(save_dir)
    except KeyboardInterrupt:
        _log_loss(model, checkpoints, "Interrupted while saving.")
        raise
    except Exception as failure:  # noqa: BLE001 - raise the training's error instead
        logging.error("%s", failure)
        return
    if saved_ones and model.trainer.group.is_chief:
        logging.info(
            f"{saved_ones[-1][1]} is saved. The same command resumes from it: python "
            f"-m plsc_tf.train --flagfile={files.join(save_dir, 'flags.cfg')}"
        )


def _log_loss(model, checkpoints, why):
    """Logs how many steps are lost because no checkpoint has them."""
    if not model.trainer.group.is_chief:
        return
    step = model.trainer.position.global_step
    checkpoint = catalog.find_all(checkpoints.directory)
    saved, path = checkpoint[-1] if checkpoint else (0, "none")
    waits = ""
    if checkpoints.writing:
        # The process ends only when the files are written.
        checkpoints.lock.keep_until_exit()
        waits = " A checkpoint is still being written; the process waits for it."
    lost = f"{max(0, step - saved)} of {step} steps are lost"
    logging.warning(f"{why} {lost}. Last checkpoint: {path}.{waits}")
