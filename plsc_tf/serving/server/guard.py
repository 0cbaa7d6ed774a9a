"""Limits the duration, the bytes and the number of connections.

aiohttp itself limits neither the time to receive a request's head nor the time a client
takes to read its answer.
"""

import asyncio
import math
import select

from aiohttp import web

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
_BUSY += b"Content-Length: 0\r\n\r\n"
# Seconds that a connection may stay open without a request.
_IDLE_SECONDS = 75.0
# Seconds during which the rest of a refused request is read and discarded.
_LINGER_SECONDS = 2.0
# Phases of a connection: waiting for a request, receiving its head, receiving its body,
# answering it, and discarding the rest of its body.
_IDLE, _HEAD, _BODY, _REQUEST, _REST = range(5)
# Bytes of a request's head: no other limit counts them, and as text in Python a byte
# may take five.
_HEAD_BYTES = 32 * 1024
# Bytes of a request's path: to find its handler, aiohttp tries all parents of it.
_PATH_BYTES = 1024
# Line ends that a head or a chunked body may have, and bytes that allow one more.
# aiohttp takes 2 microseconds for a chunk, and 10 for a read of 8 KB.
_LINE_ENDS, _LINE_BYTES = 1000, 64
# Bytes that asyncio receives at once.
READ_BYTES = 8 * 1024


class Protocol(web.RequestHandler):
    """aiohttp's protocol for one connection, with time limits and errors in JSON.

    Attributes:
        num_requests: how many heads of requests have arrived.
    """

    def __init__(self, server: web.Server, options, connections: dict):
        """Prepares a connection.

        Args:
            server: aiohttp's server, which handles the requests.
            options: the option group `server`.
            connections: its keys are the protocols of all connections; those whose last
                request is oldest come first.
        """
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            # This class closes idle connections sooner.
            keepalive_timeout=2 * _IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            max_headers=64,
            max_line_size=_PATH_BYTES,
        )
        self._options, self._connections = options, connections
        # Unlike `transport`, it stays until the last bytes are written.
        self._link = None
        self._phase, self._timer = _IDLE, None
        self.num_requests = self._num_bytes = self._line_ends = 0

    @property
    def busy(self) -> bool:
        """True if a request has arrived but its answer has not been fully written."""
        return self._phase != _IDLE or self._link.get_write_buffer_size() > 0

    @property
    def rank(self) -> int:
        """0 to 2 if it may be closed for another one, which of all is first; else 3.

        First are those without a complete request, of which uploads are last because
        their heads had a key; then those whose clients do not read their answers.
        """
        # A client without a key may leave its refusals unread, which are small.
        if self._phase in (_IDLE, _HEAD, _BODY, _REST):
            return int(self._phase == _BODY)
        return 2 if self._paused else 3

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accepts the connection, or answers 503 if there are too many requests."""
        if len(self._connections) >= self._options.max_connections:
            # Those that send no request must not keep others out.
            known = self._connections
            ranked = (one for rank in range(3) for one in known if one.rank == rank)
            if not (oldest := next(ranked, None)):
                transport.write(_BUSY)
                transport.close()
                return
            del self._connections[oldest]
            oldest._link.abort()  # Its last bytes may never be read.
        # One of many small parts takes long, and others wait until it is parsed.
        transport.max_size = READ_BYTES
        # `Bodies.send` waits until the client has read all. TLS takes no bytes for 0.
        transport.set_write_buffer_limits(1, 0)
        self._link = transport
        self._connections[self] = None
        super().connection_made(transport)
        self._limit(self._options.receive_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers and removes the connection."""
        self._connections.pop(self, None)
        self._limit(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads a request's bytes and starts the time limit of its head."""
        if self not in self._connections:
            return
        # aiohttp itself passes no bytes to go on with those that it has.
        if data and self._phase == _IDLE:
            self._phase, self._num_bytes, self._line_ends = _HEAD, 0, 0
            self._limit(self._options.receive_timeout)
        self._num_bytes += len(data)
        self._line_ends += data.count(b"\r\n")
        most_line_ends = _LINE_ENDS + self._num_bytes // _LINE_BYTES
        # Bytes besides a body's data. While a request is answered, the head of the next
        # one may come.
        others = self._num_bytes
        if self._phase in (_BODY, _REST):
            others -= self._content.total_bytes + self._num_bytes // _LINE_BYTES
        is_long = self._phase != _IDLE and others > _HEAD_BYTES
        if is_long or self._line_ends > most_line_ends:
            self._link.abort()
            return
        super().data_received(data)

    def head_received(self, request: web.Request) -> None:
        """Stops the head's time limit; `Bodies` limits the time of the body."""
        self._limit(None)
        self.num_requests += 1
        self._content = request.content
        # Other handlers read no body.
        has_body = request.method == "POST" and request.can_read_body
        self._phase = _BODY if has_body else _REQUEST
        if has_body and request.content_length is not None:
            self._line_ends = -math.inf
        if self in self._connections:  # as the last one
            self._connections[self] = self._connections.pop(self)

    def body_received(self) -> None:
        """Keeps the connection open until the answer."""
        self._phase, self._num_bytes, self._line_ends = _REQUEST, 0, 0

    @property
    def is_gone(self) -> bool:
        """True if the client has disconnected.

        While a further request waits, nothing is read that would show it.
        """
        socket, poll = self._link.get_extra_info("socket"), select.poll()
        if socket is None or self._link.is_closing():
            return True
        poll.register(socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """Closes the connection at once."""
        self._link.abort()

    def answered(self, has_all: bool) -> None:
        """Starts waiting for the next request; called when the handler has finished.

        Unless `has_all`, the rest of the body may still come, which aiohttp discards.
        """
        self._phase = _IDLE if has_all else _REST
        self._limit(_IDLE_SECONDS)

    def _limit(self, seconds):
        """Ends the connection after `seconds`, unless called again; None: never.

        Unwritten bytes must not keep the connection open.
        """
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and self in self._connections:
            self._timer = self._loop.call_later(seconds, self._link.abort)

    def handle_error(self, request, status=500, exc=None, message=None):
        """Returns the answer to a request that aiohttp could not read.

        aiohttp's own would log a traceback and repeat the request.
        """
        if isinstance(exc, UnicodeEncodeError):  # aiohttp repeats an unknown Expect
            status, message = 417, "its header Expect is unknown"
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        reason = f"Malformed HTTP: {message}".partition("\n")[0][:200]
        response = web.json_response({"error": reason}, status=status)
        response.force_close()
        return response

    async def finish_response(self, request, resp, start_time):
        """Sends a response; an error outside of handlers (Expect) becomes JSON."""
        if isinstance(resp, web.HTTPException):
            resp = self.handle_error(request, resp.status, message=resp.reason)
        return await super().finish_response(request, resp, start_time)

    def log_exception(self, *args, **kwargs):
        """Logs a defect, but no broken body and no client that is gone."""
        harmless = (web.RequestPayloadError, ConnectionError)
        if not isinstance(kwargs.get("exc_info"), harmless):
            super().log_exception(*args, **kwargs)
