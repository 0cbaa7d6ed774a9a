"""How the workers of a cluster find each other before training."""

import errno
import ipaddress
import queue
import socket
import threading
import time
import uuid

from plsc_tf.parallel import addresses
from plsc_tf.parallel.wire import PROTOCOL, Connection, StrangerError

# A worker of the last attempt may still hold the port for some seconds.
BIND_S = 5.0
# Time for one attempt to reach a worker that listens.
ATTEMPT_S = 5.0
RETRY_S = 0.2
# How much longer than its own time limit a worker waits for the chief's decision.
DECISION_S = 5.0


class JoinError(RuntimeError):
    """The workers of a cluster could not come together."""


class Door:
    """Listens on this worker's address, and lets in who speaks our language.

    Each guest is greeted in a thread of its own, so strangers keep nobody waiting.

    Args:
        cluster: the `Cluster`.
        handlers: `{purpose: function(connection, hello)}`, called in that thread.

    Raises:
        JoinError: this process cannot listen there.
    """

    def __init__(self, cluster, handlers):
        self._handlers = handlers
        self._closing = threading.Event()
        self._listener = _listen(cluster)
        self._thread = threading.Thread(target=self._accept, name="door", daemon=True)
        self._thread.start()

    def close(self):
        """Stops listening, so that somebody else can listen on the port."""
        self._closing.set()
        self._thread.join()
        self._listener.close()

    def _accept(self):
        # The timeout is for the listener alone: a thread that waits in accept would
        # keep the port after close.
        self._listener.settimeout(0.1)
        while not self._closing.is_set():
            try:
                guest, _ = self._listener.accept()
            except OSError:
                continue
            greeting = threading.Thread(target=self._greet, args=(guest,), daemon=True)
            greeting.start()

    def _greet(self, guest):
        connection = Connection(guest)
        try:
            connection.greet(ATTEMPT_S)
            hello = connection.receive(ATTEMPT_S)
            if hello["protocol"] != PROTOCOL:
                refuse(connection, "The workers run different versions of plsc_tf.")
                return
            self._handlers[hello["purpose"]](connection, hello)
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            connection.close()  # a stranger, or one that is gone already


def refuse(connection, problem):
    """Tells a guest why it cannot join, and closes the connection."""
    try:
        connection.send({"problem": problem})
    except OSError:
        pass  # nobody is left who could read it
    connection.close()


def dial(cluster, index, hello, timeout_s):
    """Reaches another worker, which may not have started yet.

    Args:
        cluster: the `Cluster`.
        index: of the other worker.
        hello: what to say first, a dict with `purpose`.
        timeout_s: how long to try.

    Raises:
        JoinError: it cannot be reached.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = max(deadline - time.monotonic(), 0.1)
        try:
            connection = _connect(cluster.addresses[index], min(left, ATTEMPT_S))
            left = max(deadline - time.monotonic(), 0)
            own = {"protocol": PROTOCOL, "index": cluster.index, "wait_s": left}
            connection.send({**own, **hello})
            return connection
        except (OSError, EOFError) as error:
            problem = error
        if time.monotonic() + RETRY_S > deadline:
            raise JoinError(
                f"{name(cluster, cluster.index)} cannot reach {name(cluster, index)} "
                f"within {timeout_s:g} s: {_reason(problem)}. Has it started? Check "
                "the address in cluster_node_ips, and that no firewall closes the port."
            )
        time.sleep(RETRY_S)


class Visit:
    """How a worker that is not the chief joins it."""

    def __init__(self, cluster, timeout_s):
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._hello = {"purpose": "join", "addresses": cluster.addresses}

    def welcome(self, connection, hello):
        """The door's handler of guests that want to join."""
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
        connection = dial(self._cluster, 0, self._hello, self._timeout_s)
        try:
            left = max(deadline - time.monotonic(), 0)
            answer = connection.receive(left + DECISION_S)
        except (OSError, EOFError) as error:
            connection.close()
            raise JoinError(
                f"{name(self._cluster, 0)}, the chief, was there but then gave no "
                f"answer: {_reason(error)}. Its own log says more."
            ) from error
        if "problem" in answer:
            connection.close()
            raise JoinError(answer["problem"])
        return {0: connection}, answer["run_id"]

    def call_off(self, problem):
        """Tells the chief, if it is there, that this worker cannot join."""
        try:
            hello = {**self._hello, "problem": problem}
            dial(self._cluster, 0, hello, ATTEMPT_S).close()
        except JoinError:
            pass  # the chief finds out that this worker does not come


class Reception:
    """How the chief receives the others."""

    def __init__(self, cluster, timeout_s):
        self._cluster = cluster
        self._start = time.monotonic()
        self._deadline = self._start + timeout_s
        self._guests = queue.SimpleQueue()
        self._members = {}
        self._present = []  # also those that cannot be members

    def welcome(self, connection, hello):
        """The door's handler of guests that want to join."""
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


def name(cluster, index):
    """What a worker is called in messages."""
    return f"Worker {index} ({cluster.addresses[index]})"


def _listen(cluster):
    """Returns a socket that listens on this worker's address."""
    own = name(cluster, cluster.index)
    host, port = addresses.split(cluster.address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise JoinError(
            f"{own}: the name {host!r} is not known here ({_reason(error)}). Check "
            "cluster_node_ips, or write the IP address."
        ) from error
    family, _, _, _, place = found[0]
    hosts = {addresses.split(address)[0] for address in cluster.addresses}
    named = place[0] != host and len(hosts) > 1
    if named and ipaddress.ip_address(place[0]).is_loopback:
        # Some systems give their own name a loopback address, which the other
        # machines cannot reach.
        place = ("", port)
    deadline = time.monotonic() + BIND_S
    while True:
        listener = socket.socket(family, socket.SOCK_STREAM)
        # TensorFlow listens on the same port afterwards, while connections that were
        # accepted here stay.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
            listener.listen(socket.SOMAXCONN)
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise JoinError(_why_not_listening(own, port, error)) from error
        time.sleep(RETRY_S)


def _why_not_listening(own, port, error):
    if error.errno == errno.EADDRINUSE:
        return (
            f"{own} cannot listen there: port {port} is in use, by a process of an "
            "earlier run or by another program. End it, or choose another port."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{own} cannot listen there: this machine has no such address. Check "
            "cluster_node_ips, and that node_ip is this machine's."
        )
    return f"{own} cannot listen there: {_reason(error)}."


def _connect(address, timeout_s):
    host, port = addresses.split(address)
    sock = socket.create_connection((host, port), timeout=timeout_s)
    connection = Connection(sock)
    try:
        if sock.getsockname() == sock.getpeername():
            # TCP may connect a socket with itself where nobody listens.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        connection.greet(timeout_s)
    except (OSError, EOFError):
        connection.close()
        raise
    return connection


def _reason(error):
    if isinstance(error, StrangerError):
        return f"somebody else listens there ({error})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
