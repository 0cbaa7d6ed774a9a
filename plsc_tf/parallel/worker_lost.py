"""Handles lost workers: exit statuses, the error, and ending a process that hangs."""

import faulthandler
import os
import sys
import threading
from collections.abc import Mapping

from absl import logging

# Exit status of a process that ends because another worker was lost.
LOST_STATUS = 76
# Exit status of a training run that ended but could not save its last weights (EX_IOERR
# in sysexits.h).
NOT_SAVED_STATUS = 74
# Exit status of all workers when training makes no progress.
STALL_STATUS = 75
# Maximum seconds for the last output: if no process reads it, writing blocks forever.
WRITE_S = 5.0


class WorkerLostError(RuntimeError):
    """A worker in the group failed, ended or became silent.

    Attributes:
        index: the lost worker's index.
        exit_status: exit status for the workers that end because of the loss.
    """

    def __init__(self, text: str, index: int, exit_status: int = LOST_STATUS) -> None:
        super().__init__(text)
        self.index, self.exit_status = index, exit_status


def silence(silence_s: float) -> str:
    """Describes a worker that was silent for `silence_s` seconds."""
    return f"was silent for {silence_s:g} s (suspended, or its machine is down)"


def by_value(values: Mapping[int, str]) -> str:
    """Describes which workers have which value: `a on workers 0, 2; b on worker 1`.

    Args:
        values: {worker index: its value}.
    """
    workers: dict[str, list[str]] = {}
    for index, value in values.items():
        workers.setdefault(value, []).append(str(index))
    return "; ".join(
        f"{value} on worker{'s'[: len(who) - 1]} {', '.join(who)}"
        for value, who in workers.items()
    )


def end_process(status: int, *lines: object) -> None:
    """Writes the stacks of all threads to stderr, logs the lines and ends the process.

    It works even if the main thread hangs. The lines come last, where users look for
    the reason.

    Args:
        status: the exit status.
        *lines: lines to log as errors.
    """
    threading.Timer(WRITE_S, os._exit, (status,)).start()
    faulthandler.dump_traceback(sys.__stderr__ or 2)
    for line in lines:
        logging.error("%s", line)
    sys.stdout.flush()
    os._exit(status)
