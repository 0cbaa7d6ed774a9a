"""Contains the watchdog, which ends the process with an error if training stalls."""

import threading

from plsc_tf.parallel.group import Group, SingleWorker
from plsc_tf.parallel.worker_lost import STALL_STATUS, end_process
from plsc_tf.reporting.recorder import StepCallback
from plsc_tf.training.circular import Classifier


class Watchdog(StepCallback):
    """Ends the process if a step or any other activity takes too long.

    It prints the stacks of all threads, and in a cluster, the chief says which workers
    the others wait for. All workers end with status 75. Put the watchdog before other
    callbacks, so that their work between two steps does not count as part of a step. It
    watches from the first step on, and a call of several steps as one activity.

    Args:
        timeout_s: longest allowed time between two signs of progress, in seconds, more
            than 0 and enough for the first step, which traces and compiles the graph.
            Longer activities, such as verification, call `model.trainer.heartbeat()`.
        group: the `plsc_tf.parallel.group.Group` of workers, or `SingleWorker`.
    """

    def __init__(self, timeout_s: float, group: Group | SingleWorker) -> None:
        super().__init__()
        self._timeout_s, self._group = timeout_s, group
        self._activity, self._has_progress = "starting", False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def set_model(self, model: Classifier) -> None:
        """Installs `heartbeat` in the trainer, for long activities to call."""
        super().set_model(model)
        model.trainer.heartbeat = self.heartbeat

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Reports that a step begins, and starts to watch."""
        self.begin(f"step {self._next_step()}")
        self.start()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Reports the end of a step; data, verification and checkpoints may follow."""
        self.begin(f"preparing step {self._next_step()}")

    def on_train_end(self, logs: dict | None = None) -> None:
        """Stops watching."""
        self.stop()

    def _next_step(self):
        return self.model.trainer.position.global_step + 1

    def begin(self, activity: str) -> None:
        """Reports the start of an activity, and restarts the clock.

        Args:
            activity: a short description, identical on all workers in this activity.
        """
        self._activity = activity
        self._group.report_activity(activity)
        self.heartbeat()

    def heartbeat(self) -> None:
        """Reports that the current activity makes progress."""
        self._has_progress = True

    def start(self) -> None:
        """Starts to watch; does nothing if it is already watching."""
        if self._thread and self._thread.is_alive():
            return
        self.heartbeat()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops watching; also call it after an exception."""
        self._stopped.set()
        if self._thread:
            self._thread.join()

    def _watch(self):
        interval, stalled_s = min(1.0, self._timeout_s / 4), 0.0
        # Counted in intervals: a suspension of the process is no stall.
        while stalled_s <= self._timeout_s:
            if self._stopped.wait(interval):
                return
            stalled_s = 0.0 if self._has_progress else stalled_s + interval
            self._has_progress = False
        finding = f"no progress for {stalled_s:.0f} s in: {self._activity}"
        # All workers report the finding of the first one that failed.
        lost = self._group.fail(finding, STALL_STATUS)
        status = lost.exit_status if lost else STALL_STATUS
        end_process(status, lost or f"This process has made {finding}.")
