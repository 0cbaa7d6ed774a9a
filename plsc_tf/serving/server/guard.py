"""A connection's time limits, and how many there may be.

Stands between the socket and aiohttp, which waits as long as a sender likes for a
request's head, and for a reader to take its answer.
"""

import asyncio
import enum

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)
_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
# What is left to do on a connection that is about to end.
_LAST_SECONDS = 1.0


class Phase(enum.Enum):
    """What a connection is doing."""

    IDLE = "between requests"
    HEAD = "a request's head is coming"
    BODY = "its body is coming"
    ANSWER = "it is being answered"


class Guard(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, and watches the clock."""

    def __init__(self, inner, connections, options, idle_seconds, gauge):
        """Guards one connection.

        Args:
            inner: aiohttp's protocol of this connection.
            connections: set of all guards with an open connection.
            options: the option group `server`.
            idle_seconds: how long a connection may have nothing to say.
            gauge: gets the number of connections.
        """
        self._inner, self._connections = inner, connections
        self._options, self._idle_seconds = options, idle_seconds
        self._gauge = gauge
        self._transport = self._reading = self._writing = None
        self._refused = self._ended = False
        self.phase = Phase.IDLE

    @property
    def busy(self):
        """Whether a request has come whose answer has not been written."""
        return self.phase is not Phase.IDLE or (
            self._transport is not None and self._transport.get_write_buffer_size() > 0
        )

    def connection_made(self, transport):
        """Lets the connection in, or says that there are too many."""
        self._transport = transport
        if len(self._connections) >= self._options.max_connections:
            self._refused = True
            transport.write(_BUSY)
            transport.close()
            return
        self._connections.add(self)
        self._gauge.set(len(self._connections))
        self._inner.connection_made(transport)
        self._limit_reading(self._options.receive_timeout)

    def connection_lost(self, exc):
        """Forgets the connection."""
        self._limit_reading(None)
        self._limit_writing(None)
        if not self._refused:
            self._connections.discard(self)
            self._gauge.set(len(self._connections))
            self._inner.connection_lost(exc)

    def data_received(self, data):
        """Bytes of a request."""
        if self._refused:
            return
        if self.phase is Phase.IDLE:
            self.phase = Phase.HEAD
            self._limit_reading(self._options.receive_timeout)
        self._inner.data_received(data)

    def eof_received(self):
        """The sender says no more; an answer that is due is still written."""
        if self._refused or self.phase is Phase.IDLE:
            return False
        self._ended = True
        if self.phase is Phase.ANSWER:
            self._inner.close()
        else:
            # All has come that will: it is a request by now, or never.
            self._limit_reading(_LAST_SECONDS)
        return True

    def pause_writing(self):
        """The reader does not keep up."""
        self._limit_writing(self._options.receive_timeout)
        self._inner.pause_writing()

    def resume_writing(self):
        """The reader has caught up."""
        self._limit_writing(None)
        self._inner.resume_writing()

    def head_received(self):
        """The request's head is there; its body is under the handler's own limit."""
        if not self._ended:
            self._limit_reading(None)
        self.phase = Phase.BODY

    def body_received(self):
        """The request is complete."""
        self._limit_reading(None)
        self.phase = Phase.ANSWER
        if self._ended:
            self._inner.close()

    def answered(self):
        """The handler is done; the next request may come."""
        self.phase = Phase.IDLE
        self._limit_reading(self._idle_seconds)
        if self._ended:
            self._inner.close()

    def _limit_reading(self, seconds):
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self._later(seconds, self._end_reading)

    def _limit_writing(self, seconds):
        if self._writing is not None:
            self._writing.cancel()
        self._writing = self._later(seconds, self._transport.abort)

    def _later(self, seconds, function):
        if seconds is None:
            return None
        return asyncio.get_running_loop().call_later(seconds, function)

    def _end_reading(self):
        if self._transport.is_closing():
            return
        if self.phase is Phase.HEAD:
            self._transport.write(_SLOW)
        # What cannot be written must not keep the connection.
        self._limit_writing(_LAST_SECONDS)
        self._transport.close()


def guard_of(request):
    """The guard of a request's connection, or None when it is gone."""
    if request.transport is None:
        return None
    return request.transport.get_protocol()
