"""How the workers of a cluster find each other before training."""

import queue
import time
import uuid

from plsc_tf.parallel.connections import (
    ATTEMPT_S,
    JoinError,
    connect,
    name,
    reason,
    refuse,
)

# How much longer than its own time limit a worker waits for the chief's decision, and
# the chief for latecomers to whom it says what is wrong.
DECISION_S = 5.0


class WorkerJoin:
    """How a worker that is not the chief joins it."""

    def __init__(self, cluster, timeout_s):
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._hello = {"purpose": "join", "addresses": cluster.addresses}

    def welcome(self, connection, hello):
        """Handles a worker that wants to join."""
        del hello
        refuse(
            connection,
            f"{name(self._cluster, self._cluster.index)} was taken for the chief. The "
            "workers have different lists of the cluster; give all of them the same "
            "cluster_node_ips, in the same order.",
        )

    def meet_all(self):
        """Returns (`{0: connection}`, run id) when all workers are there.

        Raises:
            JoinError: the chief cannot be reached, or says what is wrong.
        """
        deadline = time.monotonic() + self._timeout_s
        connection = connect(self._cluster, 0, self._hello, self._timeout_s)
        try:
            left = max(deadline - time.monotonic(), 0)
            answer = connection.receive(left + DECISION_S)
        except (OSError, EOFError) as error:
            connection.close()
            raise JoinError(
                f"{name(self._cluster, 0)}, the chief, was there but then gave no "
                f"answer: {reason(error)}. Its own log says more."
            ) from error
        if "problem" in answer:
            connection.close()
            raise JoinError(answer["problem"])
        return {0: connection}, answer["run_id"]

    def call_off(self, problem):
        """Tells the chief, if it is there, that this worker cannot join."""
        try:
            hello = {**self._hello, "problem": problem}
            connect(self._cluster, 0, hello, ATTEMPT_S).close()
        except JoinError:
            pass  # the chief finds out that this worker does not come


class ChiefJoin:
    """How the chief receives the others."""

    def __init__(self, cluster, timeout_s):
        self._cluster = cluster
        self._start = time.monotonic()
        self._deadline = self._start + timeout_s
        self._guests = queue.SimpleQueue()
        self._members = {}
        self._present = []  # also those that cannot be members

    def welcome(self, connection, hello):
        """Handles a worker that wants to join."""
        self._guests.put((connection, hello))

    def call_off(self, problem):
        """Nobody can be told by a chief that does not listen."""

    def meet_all(self):
        """Returns (`{index: connection}`, run id) when all workers are there.

        Raises:
            JoinError: one did not come in time, or has come with a problem; all that
                are there are told.
        """
        try:
            while len(self._members) < self._cluster.size - 1:
                left = self._deadline - time.monotonic()
                try:
                    self._admit(*self._guests.get(timeout=max(left, 0)))
                except queue.Empty:
                    raise JoinError(self._who_is_missing()) from None
            run_id = uuid.uuid4().hex
            for index, connection in self._members.items():
                self._send_run_id(index, connection, run_id)
        except JoinError as error:
            self._refuse_all(str(error))
            raise
        return self._members, run_id

    def _refuse_all(self, problem):
        """Tells who is there, and who comes within a few seconds."""
        for connection in self._present:
            refuse(connection, problem)
        late = self._cluster.size - 1 - len(self._present)
        until = min(self._deadline, time.monotonic() + DECISION_S)
        while late and (left := until - time.monotonic()) > 0:
            try:
                connection, _ = self._guests.get(timeout=left)
            except queue.Empty:
                return
            refuse(connection, problem)
            late -= 1

    def _admit(self, connection, hello):
        index = hello["index"]
        problem = hello.get("problem") or self._compare(index, hello["addresses"])
        former = self._members.get(index)
        if former is not None and former.is_open() and not problem:
            if not connection.is_open():
                connection.close()
                return  # had gone before it came again, and is only heard of later
            problem = (
                f"Two processes say that they are {name(self._cluster, index)}. Each "
                "worker needs its own node_ip or task index."
            )
        self._present.append(connection)
        if problem:
            raise JoinError(problem)
        # One that had come and gone may come again.
        self._members[index] = connection
        self._deadline = min(self._deadline, time.monotonic() + hello["wait_s"])

    def _compare(self, index, others):
        """Returns what is wrong with a worker's list of addresses, or None."""
        own = list(self._cluster.addresses)
        if others == own and 0 < index < len(own):
            return None
        return (
            f"The workers have different lists of the cluster. Worker {index}: "
            f"{', '.join(others)}; the chief: {', '.join(own)}. Give all of them the "
            "same cluster_node_ips, in the same order."
        )

    def _who_is_missing(self):
        missing = [
            name(self._cluster, index)
            for index in range(1, self._cluster.size)
            if index not in self._members or not self._members[index].is_open()
        ]
        waited_s = time.monotonic() - self._start
        return (
            f"{' and '.join(missing)} did not come within {waited_s:.0f} s. Started, "
            "with the same cluster_node_ips? Does a firewall close "
            f"{self._cluster.addresses[0]}? The log of the missing worker says more."
        )

    def _send_run_id(self, index, connection, run_id):
        try:
            connection.send({"run_id": run_id})
        except OSError as error:
            raise JoinError(
                f"{name(self._cluster, index)} had come but has gone: {error}."
            ) from error
