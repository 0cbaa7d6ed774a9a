"""A worker as a child process of the launcher, and how it ended."""

import contextlib
import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from plsc_tf.parallel.launch.logs import Log
from plsc_tf.parallel.worker_lost import LOST_STATUS, NOT_SAVED_STATUS, STALL_STATUS

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>

# The exit status of a wrong option.
USAGE_STATUS = 2
_EXPLAINED = {
    STALL_STATUS: "its watchdog found that a step hung",
    LOST_STATUS: "it ended because another worker was lost",
    USAGE_STATUS: "wrong options, or no such file",
    NOT_SAVED_STATUS: "its last weights could not be saved",
}
_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "from outside; the kernel sends it when memory runs out",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGABRT: "a crash in native code",
    signal.SIGBUS: "a crash in native code, or a full /dev/shm",
}
# How processes end that do what a signal of the launcher asks for.
_ENDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
_OBEYED = {-signum for signum in _ENDERS} | {128 + signum for signum in _ENDERS}


class Worker:
    """A running worker, in its own process group.

    A terminal sends Ctrl-C to its whole foreground group; so the workers do not get it
    from there, but once, from the launcher.

    Attributes:
        index: its index in the cluster.
        status: its exit status, or minus the signal that ended it; None: it runs.
        signaled: whether it was sent a signal.

    Args:
        index: its index in the cluster.
        command: its command line.
        environ: its environment.
        log: the `Log` that takes its output.
    """

    def __init__(
        self, index: int, command: Sequence[str], environ: Mapping[str, str], log: Log
    ) -> None:
        self.index = index
        self.status: int | None = None
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
        """Whether it has ended; then `status` says how, and its children are gone."""
        if self.status is None:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self._process.pid, options) is None:
                return False
            # Until it is waited for, no other process can get its group's number.
            self._signal_group(signal.SIGKILL)
            self.status = self._process.wait()
        return True

    def stopped(self) -> bool:
        """Whether it is stopped, by Ctrl-Z or SIGSTOP."""
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def tell(self, signum: int) -> None:
        """Sends it a signal, and wakes it if it is stopped."""
        if not self.ended():
            self.signaled = True
            self._process.send_signal(signum)
            self._signal_group(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, with all its children, and waits for that."""
        if not self.ended():
            self.signaled = True
            self._signal_group(signal.SIGKILL)
            self.status = self._process.wait()

    def _signal_group(self, signum):
        # PermissionError: macOS, for a group of which only ended processes are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signum)


def _die_with_parent():
    """Returns what a child calls before it runs its command; None where none can."""
    if not sys.platform.startswith("linux"):
        return None
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def tie():
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # The launcher died before the line above.

    return tie


@dataclasses.dataclass(frozen=True)
class WorkerExit:
    """How a worker ended.

    Attributes:
        index: of the worker in the cluster.
        status: its exit status, or minus the signal that ended it.
        signaled: whether the launcher had sent it a signal.
    """

    index: int
    status: int
    signaled: bool = False


def first_failure(exits: Sequence[WorkerExit]) -> WorkerExit | None:
    """Returns the exit of the worker that failed, None if none did.

    Workers that only ended because another one was lost, or hung with it, are victims;
    if there are only victims here the culprit is on another machine, and the first
    victim stands for it.

    Args:
        exits: `WorkerExit`s in the order in which they happened.
    """
    failed = [e for e in exits if e.status]
    by_itself = [e for e in failed if not e.signaled]
    kinds = [
        [e for e in by_itself if e.status not in (STALL_STATUS, LOST_STATUS)],
        [e for e in by_itself if e.status == STALL_STATUS],
        by_itself,
        [e for e in failed if e.signaled and e.status not in _OBEYED | {LOST_STATUS}],
    ]
    return next((e for kind in kinds for e in kind), None)


def exit_status(status: int) -> int:
    """Returns the status as a shell reports it: 128 + n for signal n."""
    return status if status >= 0 else 128 - status


def describe(status: int) -> str:
    """Returns how a worker ended, in words."""
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
