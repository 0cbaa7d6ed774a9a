"""Which of several ended workers is the one that failed, and how to say it."""

import dataclasses
import signal

from plsc_tf.parallel.worker_lost import LOST_STATUS, NOT_SAVED_STATUS, STALL_STATUS

# The exit status of a wrong option.
USAGE_STATUS = 2
_EXPLAINED = {
    STALL_STATUS: "its watchdog found that a step hung",
    LOST_STATUS: "it ended because another worker was lost",
    USAGE_STATUS: "wrong options, or no such file",
    NOT_SAVED_STATUS: "its last weights could not be saved",
}
_SIGNALS = {
    signal.SIGKILL: "from outside; the kernel sends it when memory runs out",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGABRT: "a crash in native code",
    signal.SIGBUS: "a crash in native code, or a full /dev/shm",
}
# How processes end that do what a signal of the launcher asks for.
_ENDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
_OBEYED = {-signum for signum in _ENDERS} | {128 + signum for signum in _ENDERS}


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


def first_failure(exits):
    """Returns the ending of the worker that failed, None when none did.

    Those that only ended because another one was lost, or hung with it, are victims;
    but when there are only victims here the culprit is on another machine, and the
    first victim stands for it.

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


def exit_status(status):
    """Returns the status by which a shell tells it: 128 + n for signal n."""
    return status if status >= 0 else 128 - status


def describe(status):
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
