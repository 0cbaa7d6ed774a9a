"""Ends a process that makes no progress, and says which worker it waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plsc_tf.parallel.worker_lost import STALL_STATUS, end_process

if TYPE_CHECKING:
    from plsc_tf.parallel.group import Group

# Workers are heard of every second: one that was silent for so long is suspect.
SILENT_S = 5.0


class StallDetector:
    """Checks that progress is reported at least every `timeout_s` seconds.

    Args:
        timeout_s: the longest time that one activity may take, in seconds.
        group: the `plsc_tf.parallel.group.Group` of workers; None, or a group of one,
            when this process is alone.

    Raises:
        ValueError: `timeout_s` is not positive.
    """

    def __init__(self, timeout_s: float, group: Group | None = None) -> None:
        if timeout_s <= 0:
            raise ValueError(
                "The time limit of a step must be positive, in seconds. Received: "
                f"timeout_s={timeout_s}"
            )
        self._timeout_s = timeout_s
        self._group = group if group and group.size > 1 else None
        self._activity = ("starting", time.monotonic())
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, activity: str) -> None:
        """Reports the activity that begins now, and restarts the clock.

        Args:
            activity: a few words; workers that do the same must say the same.
        """
        self._activity = (activity, time.monotonic())
        if self._group:
            self._group.tell(activity)

    def heartbeat(self) -> None:
        """Reports that the current activity makes progress."""
        self._activity = (self._activity[0], time.monotonic())

    def start(self) -> None:
        """Begins to watch; does nothing while it watches already."""
        if self._thread and self._thread.is_alive():
            return
        self.heartbeat()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends watching."""
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
                # The process was suspended, which is no stall.
                self._activity = (activity, now)
            elif now - began > self._timeout_s:
                self._end(activity, now - began)
                return
            last = now

    def _end(self, activity, seconds):
        if not self._group:
            finding = f"No progress for {seconds:.0f} s in: {activity}."
            end_process(STALL_STATUS, finding)
        finding = f"no progress for {seconds:.0f} s. " + who_is_behind(
            self._group.names, self._group.activities(), self._group.silences()
        )
        # The first one's finding is everybody's.
        lost = self._group.fail(finding, STALL_STATUS)
        end_process(lost.exit_status if lost else STALL_STATUS, lost or finding)


def who_is_behind(
    names: Sequence[str],
    activities: Sequence[tuple[str, float]],
    silences: Sequence[float],
) -> str:
    """Says which workers the others wait for.

    Args:
        names: of the workers.
        activities: for each one (activity, seconds since it began).
        silences: for how many seconds each one was not heard of.
    """
    silent = [i for i, seconds in enumerate(silences) if seconds > SILENT_S]
    if silent:
        return " ".join(
            f"{names[i]} was not heard of for {silences[i]:.0f} s, the last time in: "
            f"{activities[i][0]}."
            for i in silent
        )
    # Who is furthest said so last; who is behind has said nothing since.
    latest, seconds = min(activities, key=lambda reported: reported[1])
    behind = [i for i, (activity, _) in enumerate(activities) if activity != latest]
    if not behind:
        return (
            f"All workers are in: {latest}, since {seconds:.0f} s. A collective or "
            "the computation itself hangs."
        )
    late = "; ".join(
        f"{names[i]} is still in: {activities[i][0]}, since {activities[i][1]:.0f} s"
        for i in behind
    )
    return f"{late}; the others wait in: {latest}."
