"""Connects the workers of a cluster over TCP before training.

Every worker checks that it can listen on its own address, on which TensorFlow listens
afterwards. The chief listens there until all workers have connected to it.
"""

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import time

from absl import logging

from plsc_tf.parallel import addresses, wire
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.wire import PROTOCOL, Connection

# Seconds to retry listening: a worker of the previous attempt may still use the port.
BIND_S = 5.0
# Maximum seconds for one attempt to connect to a worker.
ATTEMPT_S = 5.0
RETRY_S = 0.2
# Maximum number of connections that have not sent a signed hello yet.
MAX_UNKNOWN = 500
# Hosts of strangers that the log names: a machine may have millions of addresses.
MAX_WARNINGS = 10
# Extra seconds, beyond the chief's time limit, that a worker waits for its decision;
# also the seconds that a failed chief waits for late workers, to report the problem to
# them.
DECISION_S = 5.0
_PROBLEMS = {
    errno.EADDRINUSE: "the port is in use, by a process of an earlier run or by "
    "another program. End it, or choose another port",
    errno.EADDRNOTAVAIL: "the address is not this machine's. Check cluster_node_ips "
    "and node_ip",
}


class JoinError(RuntimeError):
    """The workers of a cluster could not connect to each other."""


def name(cluster: Cluster, index: int) -> str:
    """Returns a worker's name for messages."""
    return f"Worker {index} ({cluster.addresses[index]})"


async def join(cluster: Cluster, timeout_s: float) -> dict[int, Connection]:
    """Waits until all workers have joined.

    Args:
        cluster: the `Cluster`.
        timeout_s: seconds to wait for the other workers.

    Returns:
        {worker index: connection}; the chief is connected to all other workers, and the
        others only to the chief.

    Raises:
        JoinError: the workers could not join; the message says why.
    """
    if cluster.is_chief:
        return await ChiefJoin(cluster, timeout_s).meet_all()
    try:
        listen(cluster).close()
    except JoinError as error:
        # If the chief is unreachable, its own time limit reports this worker.
        with contextlib.suppress(JoinError):
            (await connect(cluster, ATTEMPT_S, str(error))).close()
        raise
    connection = await connect(cluster, timeout_s)
    try:
        # The chief, which started before it was reached, decides in its own limit.
        answer = await asyncio.wait_for(connection.receive(), timeout_s + DECISION_S)
    except (OSError, EOFError) as error:
        connection.close()
        raise JoinError(
            f"{name(cluster, 0)}, the chief, accepted the connection but did not "
            f"answer: {_reason(error)}. See its log."
        ) from error
    if "problem" in answer:
        connection.close()
        raise JoinError(answer["problem"])
    return {0: connection}


async def connect(cluster: Cluster, timeout_s: float, problem: str = "") -> Connection:
    """Connects to the chief, which may not have started yet.

    Until then, another program may listen there, even one that pretends to be the chief
    but does not know the secret. A chief with too many callers may drop this one.

    Args:
        cluster: the `Cluster`.
        timeout_s: seconds to keep trying.
        problem: the reason if this worker cannot join, else empty.

    Returns:
        The connection, over which the chief has answered this worker's hello.

    Raises:
        JoinError: the chief cannot be reached, or has another version.
    """
    deadline = time.monotonic() + timeout_s
    hello = {"protocol": PROTOCOL, "index": cluster.index, "problem": problem}
    hello["addresses"] = cluster.addresses
    while True:
        left = min(max(deadline - time.monotonic(), 0.1), ATTEMPT_S)
        try:
            return await _introduce(cluster, hello, left)
        except (OSError, EOFError, ValueError) as error:
            if time.monotonic() + RETRY_S > deadline:
                raise JoinError(
                    f"{name(cluster, cluster.index)} could not reach {name(cluster, 0)}"
                    f" within {round(timeout_s, 1):g} s: {_reason(error)}. Check that "
                    "Worker 0 has started, that its address in cluster_node_ips is "
                    "right, that it has the same cluster_secret_file, and that no "
                    "firewall blocks the port."
                ) from error
        await asyncio.sleep(RETRY_S)


async def _introduce(cluster, hello, timeout_s):
    """Returns a connection over which the chief has answered the hello.

    Raises:
        OSError, EOFError, ValueError: no chief answered.
        JoinError: the chief refused the hello.
    """
    connection = await Connection.open(cluster.addresses[0], timeout_s, cluster.key)
    try:
        connection.send(wire.encode(hello))
        answer = await asyncio.wait_for(connection.receive(), timeout_s)
        if "problem" in answer:
            raise JoinError(answer["problem"])
    except BaseException:
        connection.close()
        raise
    return connection


def own_place(cluster: Cluster) -> tuple[int, tuple]:
    """Returns (family, address) of the socket on which this worker listens.

    Raises:
        JoinError: this machine cannot resolve the worker's host name.
    """
    own = name(cluster, cluster.index)
    host, port = addresses.split(cluster.address)
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise JoinError(
            f"{own}: this machine cannot resolve the name {host!r} ({_reason(error)}). "
            "Check cluster_node_ips, or write the IP address."
        ) from error
    family, *_, place = info[0]
    hosts = {addresses.split(address)[0] for address in cluster.addresses}
    named = place[0] != host and len(hosts) > 1
    if named and ipaddress.ip_address(place[0]).is_loopback:
        # Some systems resolve their own host name to a loopback address, which other
        # machines cannot reach, so listen on all addresses.
        place = ("", port or 0)
    return family, place


def listen(cluster: Cluster) -> socket.socket:
    """Returns a socket that listens on this worker's address.

    Raises:
        JoinError: this process cannot listen on its address.
    """
    own = name(cluster, cluster.index)
    family, place = own_place(cluster)
    both = family == socket.AF_INET6 and not place[0]
    deadline = time.monotonic() + BIND_S
    while True:
        try:
            # It sets SO_REUSEADDR: TensorFlow listens on the same port afterwards,
            # while the connections accepted here are still open.
            return socket.create_server(place, family=family, dualstack_ipv6=both)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                why = _PROBLEMS.get(error.errno or 0) or _reason(error)
                raise JoinError(f"{own} cannot listen there: {why}.") from error
        time.sleep(RETRY_S)


def _reason(error):
    if not isinstance(error, OSError):
        return "it closed the connection" if isinstance(error, EOFError) else str(error)
    if (error.errno or 0) > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or "timed out"


def _refuse(connection, problem):
    """Tells a worker why it cannot join, and closes the connection."""
    connection.send(wire.encode({"problem": problem}))
    connection.close()


class ChiefJoin:
    """Accepts the other workers as the chief."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s, self._limit = timeout_s, asyncio.timeout(timeout_s)
        self._callers: asyncio.Queue = asyncio.Queue()
        self._members: dict[int, Connection] = {}
        self._present: list[Connection] = []  # includes workers that cannot join
        self._unknown: list[Connection] = []  # have not proved that they are workers
        self._refused: set[str] = set()

    async def meet_all(self) -> dict[int, Connection]:
        """Waits until all workers have joined; returns {worker index: connection}.

        Raises:
            JoinError: a worker is late or has a problem; all workers that have
                connected are informed.
        """
        server = await asyncio.start_server(self._greet, sock=listen(self._cluster))
        try:
            async with self._limit:
                while len(self._members) < self._cluster.size - 1:
                    self._admit(*await self._callers.get())
        except (JoinError, TimeoutError) as error:
            problem = str(error) or self._who_is_missing()
            await self._refuse_all(problem)
            raise JoinError(problem) from None
        finally:
            server.close()
            for stranger in self._unknown:
                stranger.close()
        for connection in self._members.values():
            connection.send(wire.encode({"joined": True}))
        return self._members

    async def _greet(self, reader, writer):
        """Checks who connects; other programs cannot delay the workers."""
        connection = Connection(reader, writer, self._cluster.key)
        self._unknown.append(connection)
        if len(self._unknown) > MAX_UNKNOWN:
            # A worker needs milliseconds, so the oldest one is not a worker.
            self._unknown.pop(0).close()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                await connection.greet()
                hello = await connection.receive()
            if hello["protocol"] != PROTOCOL:
                _refuse(connection, "The workers run different versions of plsc_tf.")
                return
            connection.send(wire.encode({"heard": True}))
            index = int(hello["index"])
            problem = self._compare(index, hello["addresses"]) or hello["problem"]
            # The hello of a closed connection may still arrive; its worker tries again.
            if connection in self._unknown:
                self._callers.put_nowait((connection, index, problem))
        except wire.SignatureError:
            connection.close()
            host = (writer.get_extra_info("peername") or ["an unknown address"])[0]
            if host not in self._refused and len(self._refused) < MAX_WARNINGS:
                self._refused.add(host)
                logging.warning(
                    "Refused a connection from %s, which does not know the secret of "
                    "this cluster. A worker needs the same cluster_secret_file and the "
                    "same address of Worker 0.",
                    host,
                )
        # The bytes of another program may raise any error. Canceled when joining ends.
        except (Exception, asyncio.CancelledError):  # noqa: BLE001
            connection.close()
        finally:
            if connection in self._unknown:
                self._unknown.remove(connection)

    async def _refuse_all(self, problem):
        """Refuses all connected workers, and those that connect in the next seconds."""
        for connection in self._present:
            _refuse(connection, problem)
        until = self._limit.when(), asyncio.get_running_loop().time() + DECISION_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(until)):
                for _ in range(self._cluster.size - 1 - len(self._present)):
                    _refuse((await self._callers.get())[0], problem)

    def _admit(self, connection, index, problem):
        # A worker that joined and ended may have been started again.
        if not problem and index in self._members and self._members[index].is_open():
            problem = (
                f"Two processes claim to be {name(self._cluster, index)}. Give "
                "each worker a different node_ip or task_index."
            )
        self._present.append(connection)
        if problem:
            raise JoinError(problem)
        self._members[index] = connection

    def _compare(self, index, others):
        """Returns the problem with a worker's list of addresses, or None.

        Raises:
            Exception: a program that is not a worker has sent them.
        """
        own = list(self._cluster.addresses)
        if others == own and 0 < index < len(own):
            return None
        return (
            f"The workers have different lists of workers. Worker {index}: "
            f"{', '.join(others)}; the chief: {', '.join(own)}. Give all of them the "
            "same cluster_node_ips, in the same order."
        )

    def _who_is_missing(self):
        here = {k for k, member in self._members.items() if member.is_open()}
        absent = sorted(set(range(1, self._cluster.size)) - here)
        missing = [name(self._cluster, index) for index in absent]
        return (
            f"{' and '.join(missing)} did not join within {self._timeout_s:g} s. Read "
            "their logs. Check that all have the same cluster_node_ips and that no "
            f"firewall blocks {self._cluster.addresses[0]}."
        )
