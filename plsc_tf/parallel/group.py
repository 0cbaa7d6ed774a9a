"""The group of workers, which exchange messages without TensorFlow.

All messages go through the chief, over one TCP connection per worker. The chief detects
when a worker fails, ends too early or stops responding. All other workers then end with
the same error, even if their main threads hang in a collective. Each worker sends and
receives in an event loop, which runs in a thread of its own.
"""

import asyncio
import concurrent.futures
import contextlib
import json
import math
import threading
import time
from typing import Any

from absl import logging

from plsc_tf.parallel import joining, wire, worker_lost
from plsc_tf.parallel.chief import SETTLE_S, Chief
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.joining import JoinError
from plsc_tf.parallel.worker_lost import LOST_STATUS, WorkerLostError
from plsc_tf.requirements import require

__all__ = ["LOST_STATUS", "Group", "JoinError", "SingleWorker", "WorkerLostError"]

# Maximum size of a worker's value in `gather`, encoded as JSON.
MAX_VALUE_BYTES = 1 << 25
# Exit status of a failed worker that did not end by itself: the same as after an
# uncaught exception.
FAILED_STATUS = 1
# Maximum seconds to wait for the others when leaving, and for connections to close.
LEAVE_S = 5.0
# Maximum seconds to wait for the chief's decision after reporting a failure.
VERDICT_S = SETTLE_S + 3.0


class SingleWorker:
    """A process that trains alone, with the interface of a `Group`."""

    index, size, is_chief = 0, 1, True
    names = ("This process",)

    def report_activity(self, activity: str) -> None:
        """Does nothing, because no other worker asks for it."""

    def gather(self, name: str, value: Any, timeout_s: float = math.inf) -> list:
        """Returns the values of all workers: `[value]`."""
        return [value]

    def fail(self, text: str, exit_status: int = LOST_STATUS) -> None:
        """Does nothing, because no other worker has to end."""


class Group:
    """A worker's connection to the other workers; waits until all have joined.

    Args:
        cluster: the `Cluster`.
        timeout_s: seconds to wait for the other workers.
        silence_s: seconds without a message after which a worker is considered lost.
        grace_s: seconds that this process has to end by itself after a worker is lost;
            the group then ends the process.

    Attributes:
        index: this worker's index.
        size: the number of workers.
        is_chief: whether this is worker 0.
        names: the workers' names for messages; each includes the worker's address.
        lost: the `WorkerLostError`, or None while no worker is lost.

    Raises:
        JoinError: the workers could not join; the message says why.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_s: float,
        silence_s: float = 30.0,
        grace_s: float = 10.0,
    ) -> None:
        self.index, self.size = cluster.index, cluster.size
        self.is_chief = cluster.is_chief
        self.names = [joining.name(cluster, i) for i in range(cluster.size)]
        self._cluster, self._silence_s, self._grace_s = cluster, silence_s, grace_s
        self._changed = threading.Condition()
        self._results: dict[str, list] = {}
        self._activity = ("joining", time.monotonic())
        self._chiefs_silence_s = 0.0
        self.lost: WorkerLostError | None = None
        self._has_failed = self._has_left = self._has_ended = False
        chief = cluster.is_chief
        self._chief = Chief(self.names, silence_s, self._announce) if chief else None
        self._connections: dict[int, wire.Connection] = {}
        joined: concurrent.futures.Future = concurrent.futures.Future()
        self._thread = threading.Thread(  # runs the event loop
            target=lambda: asyncio.run(self._run(timeout_s, joined)),
            name="group",
            daemon=True,
        )
        self._thread.start()
        joined.result()

    def gather(self, name: str, value: Any, timeout_s: float = math.inf) -> list:
        """Returns the values of all workers, in order of index, on every worker.

        Several threads may call it at the same time with different names. A name can be
        reused.

        Args:
            name: identifies the values; the same on all workers.
            value: a value that JSON can represent, up to 32 MB.
            timeout_s: seconds that the others have, counted from the first value.

        Raises:
            WorkerLostError: a worker was lost, perhaps because its value was late.
            ValueError: the value is too large.
        """
        content = {"kind": "value", "name": name, "value": value}
        message = wire.encode({**content, "timeout_s": timeout_s})
        rule = f"The JSON of {name!r} must have at most {MAX_VALUE_BYTES:,} bytes"
        require(len(message) <= MAX_VALUE_BYTES, rule, bytes=f"{len(message):,}")
        self._in_loop(self._send_to_chief, message)
        with self._changed:
            self._changed.wait_for(
                lambda: name in self._results or self.lost or self._has_ended
            )
            if name in self._results:
                return self._results.pop(name)
            if self.lost:
                raise self.lost
            text = f"{self.names[0]}, the chief, has left, but this worker waits for"
            raise WorkerLostError(f"{text} {name!r}.", index=0)

    def report_activity(self, activity: str) -> None:
        """Sets this worker's current activity; the others learn of it within seconds.

        Args:
            activity: a short description, such as "step 57".
        """
        self._activity = (activity, time.monotonic())

    def fail(self, text: str, exit_status: int = LOST_STATUS) -> WorkerLostError | None:
        """Reports this worker's failure and returns the chief's decision.

        Only the first call sends a report. Each call waits up to a few seconds for the
        decision, because the loss of another worker may have caused the failure. After
        the decision, this process has `grace_s` seconds to end, like the others.

        Args:
            text: the reason for the failure.
            exit_status: exit status for the other workers. For `STALL_STATUS`, the
                chief adds which workers the others wait for.

        Returns:
            The `WorkerLostError` with which all workers end, or None if the chief does
            not answer. Its `index` is that of the worker that caused the failure, which
            may be another one.
        """
        with self._changed:
            first, self._has_failed = not self._has_failed, True
        if first and not self.lost:
            report = {"kind": "fail", "text": text, "status": exit_status}
            self._in_loop(self._send_to_chief, wire.encode(report))
        with self._changed:
            self._changed.wait_for(lambda: self.lost or self._has_left, VERDICT_S)
        return self.lost

    def leave(self) -> None:
        """Leaves the group normally, waiting at most a few seconds for the others."""
        with self._changed:
            if self._has_left:
                return
            self._has_left = True
        self._in_loop(self._send_to_chief, wire.encode({"kind": "bye"}))
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self.lost, LEAVE_S)
            late = not self._has_ended
        if self._chief and late:
            self._in_loop(self._chief.end)
        self._in_loop(self._closing.set)
        self._thread.join()

    def _in_loop(self, function, *arguments):
        """Calls a function in the event loop's thread.

        The methods below run in that thread too, except `_end_process`.
        """
        with contextlib.suppress(RuntimeError):  # the loop ends when this worker leaves
            self._loop.call_soon_threadsafe(function, *arguments)

    async def _run(self, timeout_s, joined):
        """Joins the other workers and exchanges messages with them until `leave`."""
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        try:
            self._connections = await joining.join(self._cluster, timeout_s)
        except BaseException as error:  # noqa: BLE001 - raised again by `__init__`
            joined.set_exception(error)
            return
        tasks = [self._loop.create_task(self._receive(i)) for i in self._connections]
        heartbeats = self._loop.create_task(self._send_heartbeats())
        joined.set_result(None)
        await self._closing.wait()
        heartbeats.cancel()
        for connection in self._connections.values():
            connection.end_sending()
        await asyncio.wait(tasks, timeout=LEAVE_S)
        for connection in self._connections.values():
            connection.close()

    # Outgoing messages

    def _send_to_chief(self, message):
        if self._chief:
            self._chief.receive(0, json.loads(message))
        else:
            self._connections[0].send(message)

    def _announce(self, content):
        """Sends a message from the chief to all workers, including itself."""
        message = wire.encode(content)
        for connection in self._connections.values():
            connection.send(message)
        self._hear(json.loads(message))

    # Incoming messages

    async def _receive(self, index):
        """Processes the messages of one connection until it is closed."""
        connection = self._connections[index]
        connection.max_bytes = self.size * (MAX_VALUE_BYTES + wire.HELLO_BYTES)
        try:
            while True:
                message = await connection.receive()
                if self._chief:
                    self._chief.receive(index, message)
                else:
                    self._hear(message)
        except (OSError, EOFError, ValueError):
            if self._chief:
                self._chief.closed(index)
            else:
                self._lose_chief("disconnected (its connection was closed)")

    def _hear(self, message):
        """Processes a message from the chief."""
        with self._changed:
            self._chiefs_silence_s = 0.0
            kind = message["kind"]
            if kind == "values":
                self._results[message["name"]] = message["values"]
            elif kind == "end":
                self._has_ended = True
            elif kind == "lost":
                self._lose(message["index"], message["text"], message["status"])
            self._changed.notify_all()

    def _lose(self, index, text, status=LOST_STATUS):
        if self.lost is None:
            if index == self.index and not self._has_failed:
                text = f"The other workers consider this worker lost. {text}"
            self.lost = WorkerLostError(text, index, status)
            if not self._has_left:
                threading.Thread(target=self._end_process, daemon=True).start()

    def _lose_chief(self, what):
        """Records the loss of the chief; only the other workers call this."""
        if self.lost or self._has_left or self._has_ended:
            return
        text = f"{self.names[0]} {what}. This worker was in: {self._activity[0]}."
        # The chief may merely be suspended. If it resumes, it receives this message.
        content = {"kind": "lost", "index": 0, "text": text}
        self._connections[0].send(wire.encode(content))
        with self._changed:
            self._lose(0, text)
            self._changed.notify_all()

    async def _send_heartbeats(self):
        """Sends heartbeats and checks for lost workers until one is lost."""
        interval = min(1.0, self._silence_s / 6)
        while not self.lost:
            await asyncio.sleep(interval)
            activity, began = self._activity
            since = time.monotonic() - began
            beat = {"kind": "beat", "activity": activity, "since": since}
            self._send_to_chief(wire.encode(beat))
            # Silence is counted in intervals: while this process is suspended, the
            # others are not silent.
            if self._chief:
                self._chief.check(interval)
                continue
            self._chiefs_silence_s += interval
            if self._chiefs_silence_s > self._silence_s:
                self._lose_chief(worker_lost.silence(self._silence_s))

    def _end_process(self):
        """Ends this process unless it ends by itself within `grace_s`."""
        logging.warning("%s Ending this process.", self.lost)
        time.sleep(self._grace_s)
        own_fault = self._has_failed and self.lost.index == self.index
        worker_lost.end_process(
            FAILED_STATUS if own_fault else self.lost.exit_status,
            self.lost,
            f"This process did not end by itself within {self._grace_s:g} s. The "
            "stacks of its threads are above.",
        )
