"""Runs a worker as a child process of the launcher, and explains how it ended."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from plsc_tf.parallel.launch.logs import Log
from plsc_tf.parallel.worker_lost import LOST_STATUS, NOT_SAVED_STATUS, STALL_STATUS

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>

# The exit status after invalid options.
USAGE_STATUS = 2
_EXPLAINED = {
    STALL_STATUS: "its watchdog found that a step hung",
    LOST_STATUS: "it ended because another worker was lost",
    USAGE_STATUS: "invalid options, or a missing file",
    NOT_SAVED_STATUS: "its last weights could not be saved",
}
_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "sent from outside; the kernel sends it when memory runs out",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGABRT: "a crash in native code",
    signal.SIGBUS: "a crash in native code, or a full /dev/shm",
}
# The statuses of processes that ended because the launcher sent them a signal.
_ENDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
_OBEYED = {-signum for signum in _ENDERS} | {128 + signum for signum in _ENDERS}


class Worker:
    """A worker process, which runs in a separate process group.

    A terminal sends SIGINT (Ctrl-C) to its whole foreground group. In a separate group,
    a worker receives the signal only once, from the launcher.

    Attributes:
        index: the worker's index in the cluster.
        status: exit status, or minus the number of the signal that ended the worker;
            None while it runs.
        signaled: whether the launcher has sent it a signal.

    Args:
        index: the worker's index in the cluster.
        command: the worker's command line.
        environ: the worker's environment variables.
        log: the `Log` for the worker's output.
    """

    def __init__(
        self, index: int, command: Sequence[str], environ: Mapping[str, str], log: Log
    ) -> None:
        self.index = index
        self.status: Any = None
        self.signaled = False
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log.fileno(),
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_die_with_parent(),
        )

    def ended(self) -> bool:
        """Returns whether the worker has ended; if so, sets `status`.

        It also kills the remaining children of a worker that has ended.
        """
        if self.status is None:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self._process.pid, options) is None:
                return False
            # The number of the process group cannot be reused until `wait` is called,
            # so the signal reaches only the worker's children.
            self._signal_group(signal.SIGKILL)
            self.status = self._process.wait()
        return True

    def send_signal(self, signum: int) -> None:
        """Sends the worker a signal, and resumes it if it is stopped."""
        if not self.ended():
            self.signaled = True
            self._process.send_signal(signum)
            self._signal_group(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the worker and its children, and waits until the worker has ended."""
        if not self.ended():
            self.signaled = True
            self._signal_group(signal.SIGKILL)
            self.status = self._process.wait()

    def _signal_group(self, signum):
        # macOS raises PermissionError if all processes in the group have ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signum)


def _die_with_parent():
    """Returns a function for the child process that ties its life to the launcher's.

    The child calls it before it runs its command. Returns None except on Linux.
    """
    if not sys.platform.startswith("linux"):
        return None
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def tie():
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # The launcher ended before the call of prctl.

    return tie


def first_failure(ended: Sequence[Worker]) -> Worker | None:
    """Returns the worker that caused the failure, or None without failure.

    Workers that ended or hung because another worker was lost did not cause the
    failure. If only such workers failed, the cause is on another machine, and the
    function returns the first of them, preferring those that hung.

    Args:
        ended: workers in the order in which they ended.
    """
    failed = [worker for worker in ended if worker.status]
    alone = [worker for worker in failed if not worker.signaled]
    lost = (STALL_STATUS, LOST_STATUS)
    kinds = [
        [worker for worker in alone if worker.status not in lost],
        [worker for worker in alone if worker.status == STALL_STATUS],
        alone,
        [worker for worker in failed if worker.status not in _OBEYED | {LOST_STATUS}],
    ]
    return next((worker for kind in kinds for worker in kind), None)


def exit_status(status: int) -> int:
    """Converts a status to the shell's convention, 128 + n for signal n."""
    return status if status >= 0 else 128 - status


def describe(status: int) -> str:
    """Describes how a worker ended."""
    if status >= 0:
        note = _EXPLAINED.get(status)
        return f"ended with status {status}" + (f" ({note})" if note else "")
    signum = -status
    try:
        name = signal.Signals(signum).name
    except ValueError:
        name = "a real-time signal"
    note = _SIGNALS.get(signum)
    return f"was ended by signal {signum}, {name}" + (f" ({note})" if note else "")
