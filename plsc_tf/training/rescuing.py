"""Saves what is done of a training that an error or a signal ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import logging

from plsc_tf.checkpoints import catalog
from plsc_tf.storage import files

if TYPE_CHECKING:
    from plsc_tf.training.checkpoint import Checkpoint
    from plsc_tf.training.classifier import Classifier
    from plsc_tf.training.termination import Termination


def save(
    model: Classifier,
    checkpoints: Checkpoint,
    termination: Termination,
    before: int,
    error: BaseException,
) -> None:
    """Saves the steps that are done, whatever ended the training, also Ctrl-C.

    Except an interruption in the middle of a step, when the weights may be ahead of
    the count of steps: then the log says what is lost.

    Args:
        model: the `Classifier`.
        checkpoints: the `Checkpoint`.
        termination: the `Termination`.
        before: steps that were done when this process began.
        error: what ended the training.
    """
    step, save_dir = model.trainer.position.global_step, checkpoints.directory
    votes = model.trainer.votes
    if votes is not None and isinstance(error, FloatingPointError):
        votes.end()  # all workers have the same error
    if votes is not None and not votes.ended:
        if checkpoints.writing:
            checkpoints.lock.keep()
        return  # the others cannot come to save
    if termination.in_step and isinstance(error, KeyboardInterrupt):
        _say_what_is_lost(model, checkpoints, "Interrupted in the middle of a step.")
        return
    try:
        if step > before and checkpoints.saved_step != step:
            epoch = model.trainer.position.epoch
            ended = epoch and not model.trainer.position.step  # but its end is not done
            checkpoints.save(str(epoch - 1) if ended else f"step_{step:08d}")
        checkpoints.wait()
        saved_ones = catalog.find_all(save_dir)
    except KeyboardInterrupt:
        _say_what_is_lost(model, checkpoints, "Interrupted while saving.")
        raise
    except Exception as failure:  # noqa: BLE001 - what ended the training comes first
        logging.error("%s", failure)
        return
    if saved_ones and model.trainer.group.is_chief:
        logging.info(
            "%s is saved. The same command resumes from it: python -m "
            "plsc_tf.train --flagfile=%s",
            saved_ones[-1][1],
            files.join(save_dir, "flags.cfg"),
        )


def _say_what_is_lost(model, checkpoints, why):
    """Logs which steps no checkpoint has."""
    if not model.trainer.group.is_chief:
        return
    step = model.trainer.position.global_step
    saved_ones = catalog.find_all(checkpoints.directory)
    saved, path = saved_ones[-1] if saved_ones else (0, None)
    if saved >= step:
        logging.warning("%s The %d steps before it are saved: %s.", why, step, path)
        return
    since = f"since the last checkpoint, {path}" if saved_ones else "as none is saved"
    lost = f"steps {saved + 1} to {step}, {step - saved} {since}"
    if checkpoints.writing:
        # The process ends when the files are written, and not before.
        checkpoints.lock.keep()
        logging.warning(
            "%s A checkpoint is still being written, for which the process waits. If "
            "it is ended before, these are lost: %s.",
            why,
            lost,
        )
        return
    logging.warning("%s Lost: %s.", why, lost)
