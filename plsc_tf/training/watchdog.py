"""Contains the watchdog, which ends the process with an error if training stalls."""

import threading
import time
from collections.abc import Sequence

import keras

from plsc_tf.parallel.group import Group
from plsc_tf.parallel.worker_lost import STALL_STATUS, end_process
from plsc_tf.requirements import require
from plsc_tf.training.circular import Classifier

# Workers report every second, so a longer silence than this means that one has stalled.
SILENT_S = 5.0


class Watchdog(keras.callbacks.Callback):
    """Ends the process if a step or any other activity takes too long.

    It prints the stacks of all threads and names the workers that the others wait for.
    All workers end with status 75. Put the watchdog before other callbacks, so that
    their work between two steps does not count as part of a step. It watches from the
    first step on.

    Args:
        timeout_s: longest allowed time between two signs of progress, in seconds. It
            must be enough for the first step, which traces and compiles the graph.
            Longer activities, such as verification, call `model.trainer.heartbeat()`.
        group: the `plsc_tf.parallel.group.Group` of workers; None, or a group of one,
            in a single process.

    Raises:
        ValueError: `timeout_s` is not positive.
    """

    def __init__(self, timeout_s: float, group: Group | None = None) -> None:
        super().__init__()
        rule = "timeout_s, the time limit of a step in seconds, must be positive"
        require(timeout_s > 0, rule, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._group = group if group and group.size > 1 else None
        self._activity = ("starting", time.monotonic())
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def set_model(self, model: Classifier) -> None:
        """Installs `heartbeat` in the trainer, for long activities to call."""
        super().set_model(model)
        model.trainer.heartbeat = self.heartbeat

    def wants(self, step: int) -> bool:
        """Returns False: a call of several steps is watched as one activity.

        See `several_steps`.
        """
        return False

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
        self._activity = (activity, time.monotonic())
        if self._group:
            self._group.report_activity(activity)

    def heartbeat(self) -> None:
        """Reports that the current activity makes progress."""
        self._activity = (self._activity[0], time.monotonic())

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
        interval = min(1.0, self._timeout_s / 4)
        last = time.monotonic()
        while not self._stopped.wait(interval):
            now = time.monotonic()
            activity, began = self._activity
            if now - last > interval + self._timeout_s / 2:
                # The process was suspended, which does not count as a stall.
                self._activity = (activity, now)
            elif now - began > self._timeout_s:
                self._end(activity, now - began)
                return
            last = now

    def _end(self, activity, seconds):
        group = self._group
        if not group:
            text = f"No progress for {seconds:.0f} s in: {activity}."
            end_process(STALL_STATUS, text)
        behind = who_is_behind(group.names, group.states())
        finding = f"no progress for {seconds:.0f} s. {behind}"
        # All workers report the finding of the first one that failed.
        lost = group.fail(finding, STALL_STATUS)
        end_process(lost.exit_status if lost else STALL_STATUS, lost or finding)


def who_is_behind(
    names: Sequence[str], states: Sequence[tuple[str, float, float]]
) -> str:
    """Returns a text that says which workers the others wait for.

    Args:
        names: names of the workers.
        states: the result of `Group.states`.
    """
    workers = [(name, *state) for name, state in zip(names, states, strict=True)]
    silent = [
        f"{name} has not reported for {silence:.0f} s. Its last activity: {activity}."
        for name, activity, _, silence in workers
        if silence > SILENT_S
    ]
    if silent:
        return " ".join(silent)
    # The worker that is furthest ahead has made the latest report; workers that are
    # behind still have an earlier activity.
    latest, seconds, _ = min(states, key=lambda state: state[1])
    behind = [
        f"{name} is still in: {activity} (for {since:.0f} s)"
        for name, activity, since, _ in workers
        if activity != latest
    ]
    if not behind:
        since = f"All workers are in: {latest} (for {seconds:.0f} s)"
        return f"{since}. A collective or the computation itself hangs."
    return f"{'; '.join(behind)}; the others wait in: {latest}."
