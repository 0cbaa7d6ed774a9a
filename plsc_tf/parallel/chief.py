"""The chief's record of all workers, and its decision about a lost worker."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from plsc_tf.parallel.worker_lost import LOST_STATUS, describe_loss, silence

# Seconds that the chief waits before it acts on a reported error. The error may only be
# a consequence of another worker's loss, which a closed connection then reveals.
SETTLE_S = 1.0


class Chief:
    """Collects the workers' messages and values, and decides which worker is lost.

    The chief decides at most once. Call all methods in the same thread.

    Args:
        names: the workers' names in messages, in order of index.
        silence_s: seconds without a message after which a worker is considered lost.
        announce: called with each message for all workers.
    """

    def __init__(
        self, names: Sequence[str], silence_s: float, announce: Callable[[dict], None]
    ) -> None:
        now = time.monotonic()
        self._names = names
        self._silence_s = silence_s
        self._announce = announce
        # {name: (values, time of the first one, timeout_s)} of those that are not
        # complete. A worker's next value of the same name comes only after these.
        self._rounds: dict[str, tuple[dict[int, Any], float, float]] = {}
        self._heard = [now] * len(names)
        self._activities = [("joining", now)] * len(names)
        self._gone_well: set[int] = set()
        # {worker: (time, reason, exit status)}, in the order of arrival.
        self._reports: dict[int, tuple[float, str, int]] = {}
        self._decided = False

    def receive(self, index: int, message: dict) -> None:
        """Processes a message from a worker, which may be the chief itself."""
        now = time.monotonic()
        self._heard[index] = now
        kind = message["kind"]
        if kind == "beat":
            self._activities[index] = (message["activity"], now - message["since"])
        elif kind == "value":
            self._take_value(index, message, now)
        elif kind == "bye":
            self._gone_well.add(index)
            if len(self._gone_well) == len(self._names):
                self.end()
        elif kind == "fail":
            self._reports[index] = now, message["text"], message["status"]
        elif kind == "lost":  # sent to a suspended chief by a worker that gave up
            self._decide(message["index"], message["text"], LOST_STATUS)

    def closed(self, index: int) -> None:
        """Processes the end of a worker's connection."""
        if index not in self._gone_well | self._reports.keys():
            self._lose(index, "disconnected (its connection was closed)")

    def check(self, now: float) -> None:
        """Checks for silent workers, failed workers and late values.

        It also sends the state of each worker to all workers.

        Args:
            now: `time.monotonic()`.
        """
        for index, heard in enumerate(self._heard):
            if index not in self._gone_well and now - heard > self._silence_s:
                self._lose(index, silence(self._silence_s))
        for index, (since, text, status) in self._reports.items():
            if now - since >= SETTLE_S:
                self._decide(index, f"{self._names[index]} failed: {text}", status)
        self._require_values(now)
        pairs = zip(self._activities, self._heard, strict=True)
        states = [[what, now - since, now - heard] for (what, since), heard in pairs]
        self._announce({"kind": "beat", "workers": states})

    def forgive(self, now: float) -> None:
        """Restarts the measurement of silence, after this process was suspended."""
        self._heard = [now] * len(self._names)

    def end(self) -> None:
        """Announces the group's normal end."""
        self._announce({"kind": "end"})

    def _take_value(self, index, message, now):
        name, timeout_s = message["name"], message["timeout_s"]
        values, *_ = self._rounds.setdefault(name, ({}, now, timeout_s))
        values[index] = message["value"]
        if len(values) == len(self._names):
            del self._rounds[name]
            in_order = [values[i] for i in range(len(values))]
            self._announce({"kind": "values", "name": name, "values": in_order})

    def _require_values(self, now):
        """Declares a worker lost that has left or is late while others wait for it."""
        for name, (values, since, timeout_s) in self._rounds.items():
            missing = set(range(len(self._names))) - values.keys()
            for index in self._gone_well & missing:
                what = f"has left, while others wait for its value of {name!r}"
                self._lose(index, what)
            if now - since > timeout_s:
                what = f"did not send a value for {name!r} within {timeout_s:g} s"
                self._lose(min(missing), what)

    def _lose(self, index, what):
        activities = [activity for activity, _ in self._activities]
        text = describe_loss(self._names, index, what, activities)
        self._decide(index, text, LOST_STATUS)

    def _decide(self, index, text, status):
        if not self._decided:
            self._decided = True
            lost = {"kind": "lost", "index": index, "text": text, "status": status}
            self._announce(lost)
