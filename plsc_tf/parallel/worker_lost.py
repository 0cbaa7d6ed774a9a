"""A lost worker: the exit statuses, the error, and the end of a process that hangs."""

import faulthandler
import os
import sys
import threading
from collections.abc import Sequence

from absl import logging

# Exit status of a process that ends because another worker was lost.
LOST_STATUS = 76
# Exit status of a training that ended, but could not save its last weights (EX_IOERR of
# sysexits.h).
NOT_SAVED_STATUS = 74
# Exit status of all workers when training makes no progress.
STALL_STATUS = 75
# Writing blocks for ever if no process reads the output.
WRITE_S = 5.0


class WorkerLostError(RuntimeError):
    """A worker of the group failed, has ended or is silent.

    Attributes:
        index: which worker was lost.
        exit_status: of the workers that end for that reason.
    """

    def __init__(
        self, message: str, index: int, exit_status: int = LOST_STATUS
    ) -> None:
        super().__init__(message)
        self.index = index
        self.exit_status = exit_status


def silence(silence_s: float) -> str:
    """Describes a worker that is silent."""
    return f"was silent for {silence_s:g} s (stopped, or its machine is gone)"


def describe_loss(
    names: Sequence[str], index: int, what: str, activities: Sequence[str]
) -> str:
    """Names the lost worker, how it was lost, and what all were doing.

    Args:
        names: of the workers in messages, in order of index.
        index: which worker was lost.
        what: what happened to it.
        activities: what each worker said last that it does.
    """
    others: dict[str, list[str]] = {}
    for i, activity in enumerate(activities):
        if i != index:
            others.setdefault(activity, []).append(str(i))
    elsewhere = "; ".join(
        activity + (f" ({', '.join(workers)})" if len(others) > 1 else "")
        for activity, workers in others.items()
    )
    return (
        f"{names[index]} {what}. It was last in: {activities[index]}; the others are "
        f"in: {elsewhere}."
    )


def end_process(status: int, *lines: object) -> None:
    """Writes the stacks of all threads to stderr, logs the lines, and ends.

    The main thread may hang. The reason comes last, where people look for it.

    Args:
        status: the exit status.
        *lines: what to log as errors.
    """
    threading.Timer(WRITE_S, os._exit, (status,)).start()
    faulthandler.dump_traceback(sys.__stderr__ or 2)
    for line in lines:
        logging.error("%s", line)
    sys.stdout.flush()
    os._exit(status)
