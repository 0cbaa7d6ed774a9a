"""How workers reach each other over TCP: one listens, the other connects."""

import errno
import ipaddress
import socket
import threading
import time

from plsc_tf.parallel import addresses
from plsc_tf.parallel.wire import PROTOCOL, Connection, StrangerError

# A worker of the last attempt may still hold the port for some seconds.
BIND_S = 5.0
# Time for one attempt to reach a worker that listens.
ATTEMPT_S = 5.0
RETRY_S = 0.2


class JoinError(RuntimeError):
    """The workers of a cluster could not come together."""


class Listener:
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
        self._thread = threading.Thread(
            target=self._accept, name="listener", daemon=True
        )
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


def connect(cluster, index, hello, timeout_s):
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
                f"within {timeout_s:g} s: {reason(problem)}. Has it started? Check "
                "the address in cluster_node_ips, and that no firewall closes the port."
            )
        time.sleep(RETRY_S)


def name(cluster, index):
    """What a worker is called in messages."""
    return f"Worker {index} ({cluster.addresses[index]})"


def reason(error):
    """Says what an error of a connection means."""
    if isinstance(error, StrangerError):
        return f"somebody else listens there ({error})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _listen(cluster):
    """Returns a socket that listens on this worker's address."""
    own = name(cluster, cluster.index)
    host, port = addresses.split(cluster.address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise JoinError(
            f"{own}: the name {host!r} is not known here ({reason(error)}). Check "
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
    return f"{own} cannot listen there: {reason(error)}."


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
