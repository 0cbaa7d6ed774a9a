"""Limits the duration, the bytes and the number of connections.

A `Guard` is placed between the socket and aiohttp, because aiohttp limits neither the
time to receive a request's head nor the time a client takes to read its answer.
"""

import asyncio

from aiohttp import web

from plsc_tf.serving.server import rest
from plsc_tf.serving.server.errors import RequestError

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)
_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
# Seconds to write the remaining bytes to a connection that is being closed.
_LAST_SECONDS = 1.0
# Phases of a connection: waiting for a request, receiving its head, receiving its body,
# and answering it.
_IDLE, _HEAD, _BODY, _ANSWER = range(4)
# Bodies with more bytes are parsed outside the event loop.
_LARGE = 256 * 1024
# Values of JSON in a request, besides the numbers of arrays.
MANY = 100_000


class Guard(asyncio.Protocol):
    """Forwards all events to aiohttp's protocol and enforces time limits."""

    def __init__(self, inner, connections: set, options, idle_seconds: float):
        """Guards one connection.

        Args:
            inner: aiohttp's protocol for this connection.
            connections: set of the guards of all open connections.
            options: the option group `server`.
            idle_seconds: maximum number of seconds between requests.
        """
        self._inner, self._connections = inner, connections
        self._options, self._idle_seconds = options, idle_seconds
        self._transport, self._refused = None, False
        self._phase, self._timers = _IDLE, {}

    @property
    def busy(self) -> bool:
        """True if a request has arrived but its answer has not been fully written."""
        return self._phase != _IDLE or (
            self._transport is not None and self._transport.get_write_buffer_size() > 0
        )

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accepts the connection, or answers 503 if there are too many."""
        self._transport = transport
        if len(self._connections) >= self._options.max_connections:
            self._refused = True
            transport.write(_BUSY)
            transport.close()
            return
        self._connections.add(self)
        self._inner.connection_made(transport)
        self._limit_reading(self._options.receive_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers and removes the connection."""
        self._limit_reading(None)
        self._limit_writing(None)
        if not self._refused:
            self._connections.discard(self)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Forwards a request's bytes and starts the time limit of its head."""
        if self._refused:
            return
        if self._phase == _IDLE:
            self._phase = _HEAD
            self._limit_reading(self._options.receive_timeout)
        self._inner.data_received(data)

    def pause_writing(self) -> None:
        """Starts the time limit for the client to read its answer."""
        self._limit_writing(self._options.receive_timeout)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Stops the time limit for the client to read its answer."""
        self._limit_writing(None)
        self._inner.resume_writing()

    def head_received(self) -> None:
        """Stops the head's time limit; `Bodies` limits the time of the body."""
        self._limit_reading(None)
        self._phase = _BODY

    def body_received(self) -> None:
        """Records that the request is complete."""
        self._phase = _ANSWER

    def answered(self) -> None:
        """Starts waiting for the next request; called when the handler has finished."""
        self._phase = _IDLE
        self._limit_reading(self._idle_seconds)

    def _limit_reading(self, seconds):
        self._limit(self._end_reading, seconds)

    def _limit_writing(self, seconds):
        if self._transport is not None:
            self._limit(self._transport.abort, seconds)

    def _limit(self, end, seconds):
        """Calls `end` after `seconds`; replaces the previous timer, None cancels it."""
        timer = self._timers.pop(end.__name__, None)
        if timer is not None:
            timer.cancel()
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timers[end.__name__] = loop.call_later(seconds, end)

    def _end_reading(self):
        if self._transport.is_closing():
            return
        if self._phase == _HEAD:
            self._transport.write(_SLOW)
        # Unwritten bytes must not keep the connection open.
        self._limit_writing(_LAST_SECONDS)
        self._transport.close()


def guard_of(request: web.Request) -> Guard | None:
    """Returns the guard of a request's connection, or None if it is closed."""
    if request.transport is None:
        return None
    return request.transport.get_protocol()


def _parse(body, most):
    # Python's lock is held while JSON is parsed, so its values are counted before.
    if sum(map(body.count, (b",", b"[", b"{"))) > most:
        message = f"A request may contain at most {most} values of JSON."
        raise RequestError("INVALID_ARGUMENT", message, status=413)
    return rest.read_json(body)


class Bodies:
    """Reads request bodies and limits the memory that they use together.

    Args:
        options: the option group `server`.
    """

    def __init__(self, options):
        self._limit = int(options.max_body_mb * 1e6)
        self._limit_together = int(options.max_receiving_mb * 1e6)
        self._seconds = options.receive_timeout
        self._held = 0

    async def read_json(self, request: web.Request, most: int = MANY) -> dict:
        """Returns the JSON object in a request's body.

        Args:
            request: the request.
            most: largest number of values in the JSON.

        Raises:
            RequestError: the body is not a JSON object, is too large or arrives too
                slowly, or other bodies use too much memory.
        """
        length = request.content_length
        if length is not None and length > self._limit:
            raise self._too_large()
        packed = length is None or "Content-Encoding" in request.headers
        reserved = self._limit if packed else length
        if self._held and self._held + reserved > self._limit_together:
            raise RequestError(
                "UNAVAILABLE", "The server is receiving too many requests.", 1
            )
        self._held += reserved
        try:
            body = await self._read(request)
            guard = guard_of(request)
            if guard is not None:
                guard.body_received()
            if len(body) > _LARGE:
                return await asyncio.to_thread(_parse, body, most)
            return _parse(body, most)
        finally:
            self._held -= reserved

    async def _read(self, request):
        try:
            async with asyncio.timeout(self._seconds):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise self._too_large() from None
        except TimeoutError:
            message = f"The body did not arrive within {self._seconds:g} s."
            raise RequestError("DEADLINE_EXCEEDED", message, status=408) from None

    def _too_large(self):
        message = f"The body of a request may have at most {self._limit} bytes."
        return RequestError("INVALID_ARGUMENT", message, status=413)
