"""What the workers of a cluster decide together, in the middle of their steps.

One worker cannot stop by itself: the others would wait for it in the next step. So
each of them brings its wishes to every step, where they are added up beside the flag
that says whether all is finite, and all workers act on the sum.
"""

import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.lost import LOST_STATUS
from plsc_tf.parallel.rows import outside_scope

STOP, ABORT = range(2)


class EndedElsewhereError(RuntimeError):
    """Another worker had a reason to end the training of all."""

    exit_status = LOST_STATUS


class Votes:
    """The wishes of one worker, and what came of all of them.

    Args:
        group: the `plsc_tf.parallel.group.Group` of the workers.

    Attributes:
        ended: whether all workers have decided to end the training.
    """

    def __init__(self, group):
        self.group = group
        self.ended = False
        self._error = None
        self._own = outside_scope(
            lambda: tf.Variable(tf.zeros([2]), trainable=False, name="votes")
        )

    def stop(self):
        """Wishes that the training ends after the step that comes."""
        self._own[STOP].assign(1.0)

    def abort(self, error):
        """Wishes that the step that comes leaves no trace and is the last.

        Args:
            error: why: this worker has nothing to bring to the step.
        """
        self._error = error
        self._own[ABORT].assign(1.0)

    def count(self, unhealthy):
        """Adds up a step's votes; called in replica context.

        Args:
            unhealthy: float32 scalar, 1 where something is not finite here.

        Returns:
            (sum of `unhealthy` over all replicas, bool scalars `{"stop", "aborted"}`).
        """
        own = tf.concat([unhealthy[None], tf.convert_to_tensor(self._own)], axis=0)
        unhealthy, stop, abort = tf.unstack(collectives.all_sum(own))
        return unhealthy, {"stop": stop > 0, "aborted": abort > 0}

    def check_abort(self, aborted):
        """Ends the training where the step was aborted.

        Args:
            aborted: whether it was.

        Raises:
            Exception: on the worker that aborted, its error.
            EndedElsewhereError: on the others, with its message.
        """
        if not aborted:
            return
        own = self._error
        messages = self.group.gather("why aborted", None if own is None else str(own))
        self.ended = True
        if own is not None:
            raise own
        told = [f"Worker {i}: {text}" for i, text in enumerate(messages) if text]
        raise EndedElsewhereError(" ".join(told))

    def end(self):
        """All workers have seen the same reason to end, at the same step."""
        self.ended = True
