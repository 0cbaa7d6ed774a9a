"""Load for `benchmarks.serving`: HTTP requests from one cheap process.

    python -m benchmarks.serving_load --port=8010 --path=/... --bodies=FILE

FILE has one body per line. Prints one JSON object. With --rate requests are due at
fixed times, whatever the server does, and their latency counts from when they were
due; without it each connection sends its next request when it has its answer.
Standard library only.
"""

import argparse
import json
import resource
import selectors
import socket
import ssl
import sys
import time

_READ = 1 << 16


def main():
    """Runs the load that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--bodies", required=True)
    parser.add_argument("--key", default="")
    parser.add_argument("--certificate", default="")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--requests", type=float, default=1e18)
    given = parser.parse_args()
    load = Load(given)
    load.run()
    print(json.dumps(load.figures()))


class Connection:
    """A socket with at most one request on its way."""

    def __init__(self, address, selector, tls):
        self._address, self._selector, self._tls = address, selector, tls
        self.socket = None
        self.due = None
        self.open()

    def open(self):
        """Connects, anew if need be."""
        if self.socket is not None:
            self._selector.unregister(self.socket)
            self.socket.close()
        self.socket = socket.create_connection(self._address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls:
            self.socket = self._tls.wrap_socket(
                self.socket, server_hostname=self._address[0]
            )
        self._selector.register(self.socket, selectors.EVENT_READ, self)
        self._answer = b""

    def send(self, request, due):
        """Sends a request that was due at a time."""
        self.due = due
        self.socket.sendall(request)

    def receive(self):
        """Reads; returns the status when the answer is complete, else None.

        Raises:
            ConnectionError: the connection is gone.
        """
        data = self.socket.recv(_READ)
        while self._tls and self.socket.pending():
            data += self.socket.recv(_READ)
        if not data:
            raise ConnectionResetError("closed")
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found:
            return None
        low = head.lower()
        start = low.index(b"content-length:") + len(b"content-length:")
        length = int(low[start:].split(b"\r\n", 1)[0])
        if len(body) < length:
            return None
        self._answer = b""
        status = int(head[9:12])
        if b"connection: close" in low:
            self.open()
        return status


class Load:
    """Connections that are kept busy, and what came of it."""

    def __init__(self, given):
        self._given = given
        with open(given.bodies, "rb") as file:
            bodies = file.read().splitlines()
        head = (
            f"POST {given.path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {given.key}\r\n"
            "Content-Length: "
        ).encode()
        tls = None
        if given.certificate:
            tls = ssl.create_default_context(cafile=given.certificate)
        self._requests = [b"%s%d\r\n\r\n%s" % (head, len(b), b) for b in bodies]
        self._selector = selectors.DefaultSelector()
        address = ("127.0.0.1", given.port)
        self._free = [
            Connection(address, self._selector, tls) for _ in range(given.connections)
        ]
        self._sent = self._busy = 0
        self._latencies, self._errors, self._seconds = [], {}, 0.0

    def run(self):
        """Sends until the time is up, and waits for the answers."""
        given = self._given
        start = time.perf_counter()
        while True:
            now = time.perf_counter() - start
            more = now < given.seconds and self._sent < given.requests
            wait = self._send_due(start, now, more)
            if not more and not self._busy:
                break
            if wait <= 0.0005 and self._free and more:
                # Sleeping is too coarse for what is due this soon.
                wait = 0
            for key, _ in self._selector.select(wait):
                self._receive(key.data)
        self._seconds = time.perf_counter() - start

    def _send_due(self, start, now, more):
        """Sends what is due; returns the seconds until something is."""
        rate = self._given.rate
        while more and self._free and self._sent < self._given.requests:
            due = self._sent / rate if rate else now
            if due > now:
                return min(due - now, 1.0)
            connection = self._free.pop()
            request = self._requests[self._sent % len(self._requests)]
            self._sent += 1
            self._busy += 1
            try:
                connection.send(request, start + due)
            except ConnectionError:
                self._fail(connection)
        return 1.0

    def _receive(self, connection):
        try:
            status = connection.receive()
        except (ConnectionError, ValueError):
            self._fail(connection)
            return
        if status is None or connection.due is None:
            return
        self._latencies.append(time.perf_counter() - connection.due)
        if status != 200:
            self._errors[status] = self._errors.get(status, 0) + 1
        self._done(connection)

    def _fail(self, connection):
        self._errors["connection"] = self._errors.get("connection", 0) + 1
        connection.open()
        if connection.due is not None:
            self._done(connection)

    def _done(self, connection):
        connection.due = None
        self._busy -= 1
        self._free.append(connection)

    def figures(self):
        """What is printed."""
        ordered = sorted(self._latencies) or [0.0]
        used = resource.getrusage(resource.RUSAGE_SELF)

        def part(share):
            return round(
                1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2
            )

        return {
            "requests": len(self._latencies),
            "requests_s": round(len(self._latencies) / self._seconds, 2),
            "seconds": round(self._seconds, 2),
            "errors": sum(self._errors.values()),
            "kinds": self._errors,
            "p50_ms": part(0.5),
            "p99_ms": part(0.99),
            "max_ms": part(1.0),
            "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        }


if __name__ == "__main__":
    sys.exit(main())
