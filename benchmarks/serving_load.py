"""Load for `benchmarks.serving`: HTTP requests over many connections."""

import asyncio
import collections
import dataclasses
import math
import pathlib
import re
import ssl
import time

import numpy as np


@dataclasses.dataclass(frozen=True)
class LoadCase:
    """Where requests are sent, and how many.

    Attributes:
        port: of the server on this machine.
        path: of its URL.
        bodies: file with one body per line.
        connections: each has at most one request on its way.
        key: API key.
        certificate: file with the server's certificate; empty: no TLS.
        rate: requests per second. They are due at fixed times, whatever the server
            does, and their latency counts from when they were due. 0: each connection
            sends its next request when it has its answer.
        seconds: how long.
        requests: how many.
    """

    port: int
    path: str
    bodies: str
    connections: int
    key: str = ""
    certificate: str = ""
    rate: float = 0.0
    seconds: float = math.inf
    requests: float = math.inf


def run(case):
    """Sends the requests of a `LoadCase`; returns the figures."""
    return asyncio.run(_Load(case).run())


class _Load:
    """Connections that are kept busy, and what came of it."""

    def __init__(self, case):
        self._case = case
        head = (
            f"POST {case.path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {case.key}\r\n"
            "Content-Length: "
        ).encode()
        bodies = pathlib.Path(case.bodies).read_bytes().splitlines()
        self._requests = [b"%s%d\r\n\r\n%s" % (head, len(b), b) for b in bodies]
        self._tls = None
        if case.certificate:
            self._tls = ssl.create_default_context(cafile=case.certificate)
        self._sent = 0
        self._latencies, self._errors = [], collections.Counter()

    async def run(self):
        """Sends all requests, waits for the answers, and returns the figures."""
        busy, self._start = time.process_time(), time.perf_counter()
        every = (self._keep_busy() for _ in range(self._case.connections))
        await asyncio.gather(*every)
        seconds = time.perf_counter() - self._start
        latencies_ms = 1e3 * np.percentile(self._latencies or [0.0], [50, 99, 100])
        median, high, longest = latencies_ms.round(2).tolist()
        return {
            "requests": len(self._latencies),
            "requests_s": round(len(self._latencies) / seconds, 2),
            "seconds": round(seconds, 2),
            "errors": self._errors.total(),
            "kinds": dict(self._errors),
            "p50_ms": median,
            "p99_ms": high,
            "max_ms": longest,
            "cpu_s": round(time.process_time() - busy, 2),
        }

    async def _keep_busy(self):
        """Sends one request after the other over a connection, made anew if need be."""
        streams = None
        while (due := self._next_due()) is not None:
            request = self._requests[self._sent % len(self._requests)]
            self._sent += 1
            await asyncio.sleep(due - time.perf_counter())
            try:
                if streams is None:
                    place = "127.0.0.1", self._case.port
                    streams = await asyncio.open_connection(*place, ssl=self._tls)
                status, last = await _ask(*streams, request)
                self._latencies.append(time.perf_counter() - due)
                if status != 200:
                    self._errors[status] += 1
            except (OSError, asyncio.IncompleteReadError):
                self._errors["connection"], last = self._errors["connection"] + 1, True
            if last and streams is not None:
                streams[1].close()
                streams = None

    def _next_due(self):
        """When the next request is due; None: it is not to be sent any more."""
        case, now = self._case, time.perf_counter()
        due = self._start + self._sent / case.rate if case.rate else now
        more = due < self._start + case.seconds and self._sent < case.requests
        return due if more else None


async def _ask(reader, writer, request):
    """Returns the status of an answer, and whether it ends the connection."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = re.search(rb"content-length:\s*(\d+)", head)
    await reader.readexactly(int(length[1]))
    return int(head[9:12]), b"connection: close" in head
