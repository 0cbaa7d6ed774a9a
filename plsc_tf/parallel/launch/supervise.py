"""Starts workers, waits for them, explains how they ended, and restarts them."""

import contextlib
import ctypes
import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from plsc_tf.parallel.launch.logs import Log, Screen, open_logs
from plsc_tf.parallel.launch.plan import Plan
from plsc_tf.parallel.worker_lost import LOST_STATUS, NOT_SAVED_STATUS, STALL_STATUS

_POLL_S = 0.05
_SHOWN_LINES = 20
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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signum)


def _die_with_parent():
    """Returns a function for the child process that ties its life to the launcher's.

    The child calls it before it runs its command.
    """
    parent, libc = os.getpid(), ctypes.CDLL(None, use_errno=True)

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
        text, note = f"ended with status {status}", _EXPLAINED.get(status)
    else:
        names = {one.value: one.name for one in signal.Signals}
        name = names.get(-status, "a real-time signal")
        text, note = f"was ended by signal {-status}, {name}", _SIGNALS.get(-status)
    return f"{text} ({note})" if note else text


@dataclasses.dataclass(eq=False, repr=False)
class Supervisor:
    """Runs this machine's workers and determines the launcher's exit status.

    Args:
        plan: the `Plan`.
        command: a worker's command line.
        environ: the launcher's environment variables.
        log_dir: folder of the log files; empty for none.
        max_restarts: maximum number of times that all workers are restarted after a
            failure.
        notice_s: seconds from a worker's failure to the SIGTERM for the others, in
            which they can detect and log the failure.
        grace_s: seconds from SIGTERM to SIGKILL.
    """

    plan: Plan
    command: Sequence[str]
    environ: Mapping[str, str]
    _: dataclasses.KW_ONLY
    log_dir: str = ""
    max_restarts: int = 0
    notice_s: float = 5.0
    grace_s: float = 15.0

    def __post_init__(self) -> None:
        local = self.plan.local
        self._logs = open_logs(self.log_dir, local)
        # With log files, the terminal shows only the first worker. Without files, it
        # shows all of them.
        shown = local[:1] if self.log_dir else local
        self._screen = Screen({i: self._logs[i] for i in shown})
        # The received signals that ask the launcher to end, in order.
        self._signals: list[int] = []

    def run(self) -> int:
        """Runs the workers until they have ended; returns the launcher's exit status.

        Raises:
            OSError: a worker cannot be started.
            JoinError: a worker cannot listen on its address.
        """
        with self._signals_taken():
            for attempt in itertools.count(1):
                if (failed := first_failure(self._attempt(attempt))) is None:
                    break
                self._report(failed)
                # The same options would fail again.
                is_final = failed.status == USAGE_STATUS or attempt > self.max_restarts
                if self._signals or is_final:
                    return exit_status(failed.status)
                logging.warning("Restart %d of %d.", attempt, self.max_restarts)
        return 128 + self._signals[0] if self._signals else 0

    @contextlib.contextmanager
    def _signals_taken(self):
        """Records SIGTERM, SIGINT and SIGHUP; works in the main thread only."""
        signums = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # set by nohup
            signums.append(signal.SIGHUP)
        with contextlib.ExitStack() as stack:
            for signum in signums:
                before = signal.signal(signum, lambda n, _: self._signals.append(n))
                stack.callback(signal.signal, signum, before)
            yield

    def _attempt(self, attempt):
        """Starts all workers; returns them in the order in which they ended."""
        workers = []
        try:
            for cluster in self.plan.places():
                workers.append(self._start(cluster, attempt))
            if attempt == 1 and self.plan.size > 1:
                local = ", ".join(map(str, self.plan.local))
                logs = f" Logs: {self.log_dir}/worker-*.log." if self.log_dir else ""
                logging.info(f"Started workers {local} of {self.plan.size}.{logs}")
            return self._watch(workers)
        finally:
            for worker in workers:
                worker.kill()
            self._screen.show(last=True)

    def _start(self, cluster, attempt):
        log = self._logs[cluster.index]
        where = f" ({cluster.address})" if cluster.size > 1 else ""
        log.begin(f"worker {cluster.index} of {cluster.size}{where}, attempt {attempt}")
        environ = self.plan.environment(cluster, self.environ)
        return Worker(cluster.index, self.command, environ, log)

    def _watch(self, workers):
        """Waits for the workers; forwards signals, and ends all if one has failed.

        Returns:
            The workers, in the order in which they ended.
        """
        ended, running, passed_on, pending = [], list(workers), 0, None
        while running:
            for worker in [w for w in running if w.ended()]:
                running.remove(worker)
                ended.append(worker)
            self._screen.show()
            if len(self._signals) > passed_on:
                passed_on = len(self._signals)
                self._pass_on(running)
            if pending is None and first_failure(ended):
                due = time.monotonic() + self.notice_s
                pending = [(due, signal.SIGTERM), (due + self.grace_s, signal.SIGKILL)]
            if pending and time.monotonic() > pending[0][0]:
                _, signum = pending.pop(0)
                for worker in running:
                    given = f"Sending {signum.name}."
                    logging.warning("Worker %d still runs. %s", worker.index, given)
                    worker.send_signal(signum)
            if running:
                time.sleep(_POLL_S)
        return ended

    def _pass_on(self, running):
        """Forwards the first signal to the workers; kills them after the second."""
        first = signal.Signals(self._signals[0])
        # The training program does not handle SIGHUP.
        signum = signal.SIGTERM if first == signal.SIGHUP else first
        text = f"{first.name}: ending the workers. A second signal kills them."
        if len(self._signals) > 1:
            signum, text = signal.SIGKILL, "Second signal: killing the workers."
        logging.warning("%s", text)
        for worker in running:
            worker.send_signal(signum)

    def _report(self, failed):
        """Logs which worker failed and how, and shows the last lines of its output."""
        logging.error("Worker %d %s.", failed.index, describe(failed.status))
        if self._screen.shows_only(failed.index):
            return
        log = self._logs[failed.index]
        if lines := log.last_lines(_SHOWN_LINES):
            where = f" ({log.path})" if log.path else ""
            sys.stderr.write(f"Its last lines{where}:\n")
        for line in lines:
            sys.stderr.write(f"  | {line}\n")
