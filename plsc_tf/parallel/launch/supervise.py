"""Starts workers, waits for them, ends them together and starts them again."""

import contextlib
import dataclasses
import itertools
import signal
import sys
import time

from absl import logging

from plsc_tf.parallel.launch import worker_exit
from plsc_tf.parallel.launch.logs import Screen, open_logs
from plsc_tf.parallel.launch.worker import Worker

_POLL_S = 0.05
_SHOWN_LINES = 20


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long the other workers have when one has failed.

    Attributes:
        notice_s: seconds to notice it by themselves and to say so in their logs.
        grace_s: seconds from SIGTERM to SIGKILL.
    """

    notice_s: float = 5.0
    grace_s: float = 15.0


class Stop:
    """Signals that ask the launcher to end: SIGTERM, Ctrl-C, a closed terminal.

    Attributes:
        received: their numbers, in order.
    """

    def __init__(self):
        self.received = []

    @contextlib.contextmanager
    def listening(self):
        """Takes the signals over for a while; call it in the main thread."""
        signums = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            signums.append(signal.SIGHUP)
        before = {
            signum: signal.signal(signum, lambda n, _: self.received.append(n))
            for signum in signums
        }
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    @property
    def status(self):
        """The exit status that tells it; 0: nobody asked."""
        return 128 + self.received[0] if self.received else 0

    def to_workers(self):
        """Returns the signal to pass on; trainings know no SIGHUP."""
        first = self.received[0]
        return signal.SIGTERM if first == signal.SIGHUP else first


class Supervisor:
    """The workers of this machine, from their start to the launcher's exit status.

    Args:
        plan: the `Plan`.
        command: the command line of a worker.
        environ: the environment of the launcher.
        log_dir: folder of the logs; empty: none.
        max_restarts: how often all are started again after a failure.
        patience: the `Patience` with the others then.
    """

    def __init__(
        self, plan, command, environ, *, log_dir="", max_restarts=0, patience=None
    ):
        self._plan = plan
        self._command = command
        self._environ = environ
        self._max_restarts = max_restarts
        self._patience = patience or Patience()
        self._logs = open_logs(log_dir, plan.local)
        self._log_dir = log_dir
        # Without files the terminal is the only place for what the others write.
        shown = plan.local[:1] if log_dir else plan.local
        self._screen = Screen({i: self._logs[i] for i in shown})
        self._stop = Stop()

    def run(self):
        """Runs the workers until they are done, and returns the exit status.

        Raises:
            OSError: a worker cannot be started, or not listen on its address.
        """
        with self._stop.listening():
            for attempt in itertools.count(1):
                failed = worker_exit.first_failure(self._attempt(attempt))
                if failed is None:
                    return self._stop.status
                self._report(failed)
                if self._stop.received or not self._may_restart(failed, attempt):
                    return worker_exit.exit_status(failed.status)
                logging.warning("Restart %d of %d.", attempt, self._max_restarts)

    def _may_restart(self, failed, attempt):
        if failed.status == worker_exit.USAGE_STATUS and self._max_restarts:
            logging.warning("Wrong options stay wrong: there is no restart.")
            return False
        return attempt <= self._max_restarts

    def _attempt(self, attempt):
        """Starts all workers and returns their `WorkerExit`s once all have ended."""
        workers = []
        try:
            for cluster in self._plan.places():
                workers.append(self._start(cluster, attempt))
            self._announce(attempt)
            return self._watch(workers)
        finally:
            for worker in workers:
                worker.kill()
            self._screen.show(last=True)

    def _start(self, cluster, attempt):
        log = self._logs[cluster.index]
        where = f" ({cluster.address})" if cluster.size > 1 else ""
        log.begin(f"worker {cluster.index} of {cluster.size}{where}, attempt {attempt}")
        environ = self._plan.environment(cluster, self._environ)
        return Worker(cluster.index, self._command, environ, log)

    def _announce(self, attempt):
        if attempt == 1 and self._plan.size > 1:
            first, last = self._plan.local[0], self._plan.local[-1]
            which = f"worker {first}" if first == last else f"workers {first} to {last}"
            logs = f" Logs: {self._log_dir}/worker-*.log." if self._log_dir else ""
            logging.info("Started %s of %d.%s", which, self._plan.size, logs)

    def _watch(self, workers):
        """Waits for the workers, passes signals on, ends them when one has failed."""
        exits, passed_on, failed_at, asked = [], 0, None, False
        running = list(workers)
        while running:
            for worker in [w for w in running if w.ended()]:
                running.remove(worker)
                exits.append(
                    worker_exit.WorkerExit(worker.index, worker.status, worker.signaled)
                )
            self._screen.show()
            if len(self._stop.received) > passed_on:
                passed_on = len(self._stop.received)
                self._pass_on(running)
            if failed_at is None and worker_exit.first_failure(exits):
                failed_at = time.monotonic()
            waited = 0 if failed_at is None else time.monotonic() - failed_at
            if waited > self._patience.notice_s and not asked:
                asked = True
                self._ask(running)
            if waited > self._patience.notice_s + self._patience.grace_s:
                for worker in running:
                    logging.warning("Worker %d did not end: killed.", worker.index)
                    worker.kill()
            if running:
                time.sleep(_POLL_S)
        return exits

    def _ask(self, running):
        """Asks those to end that did not notice that another one has failed."""
        for worker in running:
            state = "is stopped" if worker.stopped() else "still runs"
            logging.warning("Worker %d %s: it is asked to end.", worker.index, state)
            worker.tell(signal.SIGTERM)

    def _pass_on(self, running):
        """Passes the first signal on to the workers; a second one kills them."""
        if len(self._stop.received) > 1:
            logging.warning("Asked a second time: the workers are killed.")
            for worker in running:
                worker.kill()
            return
        signum = self._stop.to_workers()
        logging.warning(
            "%s: the workers end too; once more kills them.",
            signal.Signals(self._stop.received[0]).name,
        )
        for worker in running:
            worker.tell(signum)

    def _report(self, failed):
        """Says who failed and how, and shows its last lines."""
        logging.error(
            "Worker %d %s.", failed.index, worker_exit.describe(failed.status)
        )
        if self._screen.shows_only(failed.index):
            return
        log = self._logs[failed.index]
        lines = log.last_lines(_SHOWN_LINES)
        where = f" ({log.path})" if log.path else ""
        if lines:
            sys.stderr.write(f"Its last lines{where}:\n")
        for line in lines:
            sys.stderr.write(f"  | {line}\n")
