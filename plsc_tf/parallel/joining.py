"""Connects the workers of a cluster over TCP before training.

Every worker listens on its own address and, unless it is the chief, connects to the
chief.
"""

import errno
import ipaddress
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable

from plsc_tf.parallel import addresses
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.wire import PROTOCOL, Connection, StrangerError

# Seconds to retry listening: a worker of the previous attempt may still use the port.
BIND_S = 5.0
# Maximum seconds for one attempt to connect to a worker.
ATTEMPT_S = 5.0
RETRY_S = 0.2
# Extra seconds, beyond its own time limit, that a worker waits for the chief's
# decision; also the seconds that a failed chief waits for late workers, to report the
# problem to them.
DECISION_S = 5.0


class JoinError(RuntimeError):
    """The workers of a cluster could not connect to each other."""


class Listener:
    """Listens on this worker's address and accepts connections from other workers.

    Each connection is checked in its own thread, so other programs that connect cannot
    delay the workers.

    Args:
        cluster: the `Cluster`.
        welcome: called with (connection, hello) for each worker, in that thread.

    Raises:
        JoinError: this process cannot listen on its address.
    """

    def __init__(self, cluster: Cluster, welcome: Callable) -> None:
        self._welcome = welcome
        self._closing = threading.Event()
        self._listener = _listen(cluster)
        self._thread = threading.Thread(
            target=self._accept, name="listener", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening and releases the port for TensorFlow."""
        self._closing.set()
        self._thread.join()
        self._listener.close()

    def _accept(self):
        # Without a timeout, a thread that waits in `accept` would keep the port in use
        # after `close`.
        self._listener.settimeout(0.1)
        while not self._closing.is_set():
            try:
                caller, _ = self._listener.accept()
            except OSError:
                continue
            threading.Thread(target=self._greet, args=(caller,), daemon=True).start()

    def _greet(self, caller):
        connection = Connection(caller)
        try:
            connection.greet(ATTEMPT_S)
            hello = connection.receive(ATTEMPT_S)
            if hello["protocol"] != PROTOCOL:
                refuse(connection, "The workers run different versions of plsc_tf.")
                return
            self._welcome(connection, hello)
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            connection.close()  # another program, or a worker that has ended


def refuse(connection: Connection, problem: str) -> None:
    """Tells a worker why it cannot join, and closes the connection."""
    try:
        connection.send({"problem": problem})
    except OSError:
        pass  # the worker has ended
    connection.close()


def connect(cluster: Cluster, timeout_s: float, problem: str = "") -> Connection:
    """Connects to the chief, which may not have started yet.

    Args:
        cluster: the `Cluster`.
        timeout_s: seconds to keep trying.
        problem: the reason if this worker cannot join, else empty.

    Returns:
        The connection, over which this worker's hello has been sent.

    Raises:
        JoinError: the chief cannot be reached.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = max(deadline - time.monotonic(), 0.1)
        try:
            connection = _connect(cluster.addresses[0], min(left, ATTEMPT_S))
            hello = {
                "protocol": PROTOCOL,
                "index": cluster.index,
                "addresses": cluster.addresses,
                "wait_s": max(deadline - time.monotonic(), 0),
                "problem": problem,
            }
            connection.send(hello)
            return connection
        except (OSError, EOFError) as error:
            if time.monotonic() + RETRY_S > deadline:
                raise JoinError(
                    f"{name(cluster, cluster.index)} cannot reach {name(cluster, 0)} "
                    f"within {timeout_s:g} s: {_reason(error)}. Has it started? Check "
                    "the address in cluster_node_ips, and that no firewall closes the "
                    "port."
                ) from error
        time.sleep(RETRY_S)


def name(cluster: Cluster, index: int) -> str:
    """Returns a worker's name for messages."""
    return f"Worker {index} ({cluster.addresses[index]})"


def _reason(error):
    if isinstance(error, StrangerError):
        return f"another program listens there ({error})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _listen(cluster):
    """Returns a socket that listens on this worker's address."""
    own = name(cluster, cluster.index)
    host, port = addresses.split(cluster.address)
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except OSError as error:
        raise JoinError(
            f"{own}: the name {host!r} is not known here ({_reason(error)}). Check "
            "cluster_node_ips, or write the IP address."
        ) from error
    hosts = {addresses.split(address)[0] for address in cluster.addresses}
    named = place[0] != host and len(hosts) > 1
    if named and ipaddress.ip_address(place[0]).is_loopback:
        # Some systems resolve their own host name to a loopback address, which other
        # machines cannot reach, so listen on all addresses.
        place = ("", port)
    deadline = time.monotonic() + BIND_S
    while True:
        listener = socket.socket(family, socket.SOCK_STREAM)
        # TensorFlow listens on the same port afterwards, while the connections accepted
        # here are still open.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
            listener.listen(socket.SOMAXCONN)
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                why = addresses.listen_problem(error)
                raise JoinError(f"{own} cannot listen there: {why}.") from error
        time.sleep(RETRY_S)


def _connect(address, timeout_s):
    sock = socket.create_connection(addresses.split(address), timeout=timeout_s)
    connection = Connection(sock)
    try:
        if sock.getsockname() == sock.getpeername():
            # If no process listens, TCP may connect a socket to itself.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        connection.greet(timeout_s)
    except (OSError, EOFError):
        connection.close()
        raise
    return connection


class WorkerJoin:
    """Joins the cluster as a worker other than the chief."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster, self._timeout_s = cluster, timeout_s

    def welcome(self, connection: Connection, hello: dict) -> None:
        """Refuses a worker that mistakes this one for the chief."""
        del hello
        refuse(
            connection,
            f"{name(self._cluster, self._cluster.index)} was taken for the chief. The "
            "workers have different lists of the cluster; give all of them the same "
            "cluster_node_ips, in the same order.",
        )

    def meet_all(self) -> tuple[dict[int, Connection], str]:
        """Waits until all workers have joined; returns (`{0: connection}`, run id).

        Raises:
            JoinError: the chief cannot be reached, or reports a problem.
        """
        deadline = time.monotonic() + self._timeout_s
        connection = connect(self._cluster, self._timeout_s)
        try:
            left = max(deadline - time.monotonic(), 0)
            answer = connection.receive(left + DECISION_S)
        except (OSError, EOFError) as error:
            connection.close()
            raise JoinError(
                f"{name(self._cluster, 0)}, the chief, accepted the connection but "
                f"gave no answer: {_reason(error)}. See its log."
            ) from error
        if "problem" in answer:
            connection.close()
            raise JoinError(answer["problem"])
        return {0: connection}, answer["run_id"]

    def call_off(self, problem: str) -> None:
        """Tells the chief that this worker cannot join, if the chief can be reached."""
        try:
            connect(self._cluster, ATTEMPT_S, problem).close()
        except JoinError:
            pass  # the chief's own time limit reports this worker as missing


class ChiefJoin:
    """Accepts the other workers as the chief."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._start = time.monotonic()
        self._deadline = self._start + timeout_s
        self._callers: queue.SimpleQueue = queue.SimpleQueue()
        self._members: dict[int, Connection] = {}
        self._present: list[Connection] = []  # includes workers that cannot join

    def welcome(self, connection: Connection, hello: dict) -> None:
        """Queues a worker that wants to join."""
        self._callers.put((connection, hello))

    def call_off(self, problem: str) -> None:
        """Does nothing: without a listener, no worker has connected."""

    def meet_all(self) -> tuple[dict[int, Connection], str]:
        """Waits until all workers have joined; returns (`{index: connection}`, run id).

        Raises:
            JoinError: a worker is late or has a problem; all workers that have
                connected are informed.
        """
        try:
            while len(self._members) < self._cluster.size - 1:
                left = self._deadline - time.monotonic()
                try:
                    self._admit(*self._callers.get(timeout=max(left, 0)))
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
        """Refuses all connected workers, and those that connect in the next seconds."""
        for connection in self._present:
            refuse(connection, problem)
        until = min(self._deadline, time.monotonic() + DECISION_S)
        for _ in range(self._cluster.size - 1 - len(self._present)):
            try:
                left = max(until - time.monotonic(), 0)
                connection, _ = self._callers.get(timeout=left)
            except queue.Empty:
                return
            refuse(connection, problem)

    def _admit(self, connection, hello):
        index = hello["index"]
        problem = hello["problem"] or self._compare(index, hello["addresses"])
        # A worker that joined and ended may have been started again.
        if not problem and index in self._members and self._members[index].is_open():
            if not connection.is_open():
                connection.close()
                return  # an earlier connection of the same worker, handled late
            problem = (
                f"Two processes say that they are {name(self._cluster, index)}. Each "
                "worker needs its own node_ip or task index."
            )
        self._present.append(connection)
        if problem:
            raise JoinError(problem)
        self._members[index] = connection
        self._deadline = min(self._deadline, time.monotonic() + hello["wait_s"])

    def _compare(self, index, others):
        """Returns the problem with a worker's list of addresses, or None."""
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
            f"{self._cluster.addresses[0]}? See the log of the missing worker."
        )

    def _send_run_id(self, index, connection, run_id):
        try:
            connection.send({"run_id": run_id})
        except OSError as error:
            raise JoinError(
                f"{name(self._cluster, index)} joined but has ended: {error}."
            ) from error
