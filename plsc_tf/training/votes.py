"""Joint decisions of the workers of a cluster during their steps.

One worker cannot stop by itself: the others would wait for it in the next step. So
each worker adds its votes to every step, where they are summed with the flag
that says whether all is finite, and all workers act on the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import outside_scope
from plsc_tf.parallel.worker_lost import LOST_STATUS

if TYPE_CHECKING:
    from plsc_tf.parallel.group import Group

STOP, ABORT = range(2)


class EndedElsewhereError(RuntimeError):
    """Another worker had a reason to end the training of all."""

    exit_status = LOST_STATUS


class Votes:
    """The votes of one worker, and their outcome.

    Args:
        group: the `plsc_tf.parallel.group.Group` of the workers.

    Attributes:
        ended: whether all workers have decided to end the training.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.ended = False
        self._error: Exception | None = None
        self._votes = outside_scope(
            lambda: tf.Variable(tf.zeros([2]), trainable=False, name="votes")
        )

    def stop(self) -> None:
        """Votes to end the training after the next step."""
        self._votes[STOP].assign(1.0)

    def abort(self, error: Exception) -> None:
        """Votes to discard the next step and to end the training.

        Args:
            error: why: this worker has nothing to bring to the step.
        """
        self._error = error
        self._votes[ABORT].assign(1.0)

    def count(self, unhealthy: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Adds up a step's votes; called in replica context.

        Args:
            unhealthy: float32 scalar, 1 where something is not finite here.

        Returns:
            (sum of `unhealthy` over all replicas, bool scalars `{"stop", "aborted"}`).
        """
        counts = tf.concat([unhealthy[None], tf.convert_to_tensor(self._votes)], axis=0)
        unhealthy, stop, abort = tf.unstack(collectives.all_sum(counts))
        return unhealthy, {"stop": stop > 0, "aborted": abort > 0}

    def check_abort(self, aborted: bool) -> None:
        """Ends the training where the step was aborted.

        Args:
            aborted: whether it was.

        Raises:
            Exception: on the worker that aborted, its error.
            EndedElsewhereError: on the others, with its message.
        """
        if not aborted:
            return
        error = self._error
        message = None if error is None else str(error)
        messages = self.group.gather("why aborted", message)
        self.ended = True
        if error is not None:
            raise error
        reasons = [f"Worker {i}: {text}" for i, text in enumerate(messages) if text]
        raise EndedElsewhereError(" ".join(reasons))

    def end(self) -> None:
        """All workers have seen the same reason to end, at the same step."""
        self.ended = True
