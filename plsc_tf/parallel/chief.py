"""The chief's record of all workers, and its decision about a lost worker."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from plsc_tf.parallel.worker_lost import LOST_STATUS, STALL_STATUS, by_value, silence

# Seconds that the chief waits before it acts on a reported error. The error may only be
# a consequence of another worker's loss, which a closed connection then reveals.
SETTLE_S = 1.0
# Workers report every second, so a longer silence than this means that one has stalled.
SILENT_S = 5.0


class Chief:
    """Collects the workers' messages and values, and decides which worker is lost.

    The chief decides at most once. Call all methods in the same thread.

    Its clock advances only in `check`, so while this process is suspended, the others
    are neither silent nor late.

    Args:
        names: the workers' names in messages, in order of index.
        silence_s: seconds without a message after which a worker is considered lost.
        announce: called with each message for all workers.
    """

    def __init__(
        self, names: Sequence[str], silence_s: float, announce: Callable[[dict], None]
    ) -> None:
        self._names, self._silence_s, self._announce = names, silence_s, announce
        self._now = 0.0
        # {name: (values, time of the first one, timeout_s)} of those that are not
        # complete. A worker's next value of the same name comes only after these.
        self._rounds: dict[str, tuple[dict[int, Any], float, float]] = {}
        self._heard = [0.0] * len(names)
        # The starts are exact, to show who is behind, even by milliseconds.
        self._activities = [("joining", time.monotonic())] * len(names)
        self._gone_well: set[int] = set()
        # {worker: (time, reason, exit status)}, in the order of arrival.
        self._reports: dict[int, tuple[float, str, int]] = {}
        self._decided = False

    def receive(self, index: int, message: dict) -> None:
        """Processes a message from a worker, which may be the chief itself."""
        self._heard[index] = self._now
        kind = message["kind"]
        if kind == "beat":
            began = time.monotonic() - message["since"]
            self._activities[index] = (message["activity"], began)
        elif kind == "value":
            self._take_value(index, message)
        elif kind == "bye":
            self._gone_well.add(index)
            if len(self._gone_well) == len(self._names):
                self.end()
        elif kind == "fail":
            self._reports[index] = self._now, message["text"], message["status"]
        elif kind == "lost":  # sent to a suspended chief by a worker that gave up
            self._decide(message["index"], message["text"], LOST_STATUS)

    def closed(self, index: int) -> None:
        """Processes the end of a worker's connection."""
        if index not in self._gone_well | self._reports.keys():
            self._lose(index, "disconnected (its connection was closed)")

    def check(self, seconds: float) -> None:
        """Checks for silent workers, failed workers and late values.

        It also shows all workers that the chief is alive.

        Args:
            seconds: time since the last call, without suspensions of this process.
        """
        self._now += seconds
        for index, heard in enumerate(self._heard):
            if index not in self._gone_well and self._now - heard > self._silence_s:
                self._lose(index, silence(self._silence_s))
        for index, (since, text, status) in self._reports.items():
            if self._now - since > SETTLE_S:
                if status == STALL_STATUS:
                    text = f"{text}. {self._who_is_behind()}"
                self._decide(index, f"{self._names[index]} failed: {text}", status)
        self._require_values()
        self._announce({"kind": "beat"})

    def end(self) -> None:
        """Announces the group's normal end."""
        self._announce({"kind": "end"})

    def _take_value(self, index, message):
        name, timeout_s = message["name"], message["timeout_s"]
        values, *_ = self._rounds.setdefault(name, ({}, self._now, timeout_s))
        values[index] = message["value"]
        if len(values) == len(self._names):
            del self._rounds[name]
            in_order = [values[i] for i in range(len(values))]
            self._announce({"kind": "values", "name": name, "values": in_order})

    def _require_values(self):
        """Declares a worker lost that has left or is late while others wait for it."""
        for name, (values, since, timeout_s) in self._rounds.items():
            missing = set(range(len(self._names))) - values.keys()
            for index in self._gone_well & missing:
                what = f"has left, while others wait for its value of {name!r}"
                self._lose(index, what)
            if self._now - since > timeout_s:
                what = f"did not send a value for {name!r} within {timeout_s:g} s"
                self._lose(min(missing), what)

    def _who_is_behind(self):
        """Says which workers the others wait for."""
        # The worker that is furthest ahead has begun its activity last.
        latest, since = max(self._activities, key=lambda activity: activity[1])
        now = time.monotonic()
        states = zip(self._names, self._heard, self._activities, strict=True)
        behind = [
            f"{name} is still in: {activity} (for {now - began:.0f} s; last "
            f"heard of {self._now - heard:.0f} s ago)"
            for name, heard, (activity, began) in states
            if activity != latest or self._now - heard > SILENT_S
        ]
        if behind:
            return f"{'; '.join(behind)}; the others wait in: {latest}."
        all_in = f"All workers are in: {latest} (for {now - since:.0f} s)"
        return f"{all_in}. A collective or the computation itself hangs."

    def _lose(self, index, what):
        others = {i: activity for i, (activity, _) in enumerate(self._activities)}
        last = others.pop(index)
        activities = f"It was last in: {last}; the others are in: {by_value(others)}."
        self._decide(index, f"{self._names[index]} {what}. {activities}", LOST_STATUS)

    def _decide(self, index, text, status):
        if not self._decided:
            self._decided = True
            lost = {"kind": "lost", "index": index, "text": text, "status": status}
            self._announce(lost)
