"""Limits the duration, the bytes and the number of connections.

aiohttp itself limits neither the time to receive a request's head nor the time a client
takes to read its answer.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import traceback
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web

from plsc_tf.serving.server import batching
from plsc_tf.serving.server.errors import RequestError, too_large

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
_BUSY += b"Content-Length: 0\r\n\r\n"
# Seconds that a connection may stay open without a request.
_IDLE_SECONDS = 75.0
# Seconds during which the rest of a refused request is read and discarded.
_LINGER_SECONDS = 2.0
# Phases of a connection: waiting for a request, receiving its head, receiving its body,
# and answering it.
_IDLE, _HEAD, _BODY, _REQUEST = range(4)
# Seconds in which most messages of gRPC have arrived.
_AT_ONCE_SECONDS = 0.1
# Bytes of a request's head: no other limit counts them, and as text in Python a byte
# may take five.
_HEAD_BYTES = 32 * 1024
# A request may have this many line ends, plus one per so many bytes. One-byte chunks
# exceed the limit; aiohttp takes six times as long to parse them as larger chunks.
_LINE_ENDS, _LINE_BYTES = 1000, 8
# Bytes that asyncio receives at once.
READ_BYTES = 8 * 1024
# Requests with more bytes are parsed outside the event loop.
_LARGE = 64 * 1024


class Protocol(web.RequestHandler):
    """aiohttp's protocol for one connection, with time limits and errors in JSON."""

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
        )
        self._options, self._connections = options, connections
        # Unlike `transport`, it stays until the last bytes are written.
        self._link = None
        self._phase, self._timers = _IDLE, {}
        self._num_bytes = self._line_ends = 0

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
        if self._phase in (_HEAD, _BODY) or not self.busy:
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
        # So that `pause_writing` is called for every byte that the client leaves.
        transport.set_write_buffer_limits(0)
        self._link = transport
        self._connections[self] = None
        super().connection_made(transport)
        self._limit("reading", self._options.receive_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers and removes the connection."""
        self._connections.pop(self, None)
        for name in [*self._timers]:
            self._limit(name, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads a request's bytes and starts the time limit of its head."""
        if self not in self._connections:
            return
        # aiohttp itself passes no bytes to go on with those that it has.
        if data and self._phase == _IDLE:
            self._phase, self._num_bytes, self._line_ends = _HEAD, 0, 0
            self._limit("reading", self._options.receive_timeout)
        self._num_bytes += len(data)
        self._line_ends += data.count(b"\r\n")
        most_line_ends = _LINE_ENDS + self._num_bytes // _LINE_BYTES
        is_long = self._phase == _HEAD and self._num_bytes > _HEAD_BYTES
        if is_long or self._line_ends > most_line_ends:
            self._link.abort()
            return
        super().data_received(data)

    def pause_writing(self) -> None:
        """Starts the time limit for the client to read its answer."""
        if self._link:  # TLS writes before `connection_made`
            self._limit("writing", self._options.receive_timeout)
            super().pause_writing()
            self._drop_unread()

    def _drop_unread(self):
        """Closes the oldest connections whose clients leave too many bytes unread."""
        left = self._options.max_receiving_mb * 1e6
        for one in reversed(self._connections):
            size = one._link.get_write_buffer_size()
            if size and left < 0:
                one._link.abort()
            left -= size

    def resume_writing(self) -> None:
        """Stops the time limit for the client to read its answer."""
        if self._paused:
            self._limit("writing", None)
            super().resume_writing()

    def head_received(self, has_body: bool) -> None:
        """Stops the head's time limit; `Bodies` limits the time of the body."""
        self._limit("reading", None)
        self._phase = _BODY if has_body else _REQUEST
        if self in self._connections:  # as the last one
            self._connections[self] = self._connections.pop(self)

    def body_received(self) -> None:
        """Keeps the connection open until the answer."""
        self._phase = _REQUEST

    def answered(self) -> None:
        """Starts waiting for the next request; called when the handler has finished."""
        self._phase = _IDLE
        self._limit("reading", _IDLE_SECONDS)

    def _limit(self, name, seconds):
        """Ends the connection after `seconds`; replaces the timer of this name.

        None cancels it. Unwritten bytes must not keep the connection open.
        """
        if name in self._timers:
            self._timers.pop(name).cancel()
        if seconds is not None and self in self._connections:
            self._timers[name] = self._loop.call_later(seconds, self._link.abort)

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


@dataclasses.dataclass(eq=False)
class _Request:
    """A request's bytes in memory; those of slow messages are not known yet.

    If others need the memory, its task is canceled.
    """

    key: str
    task: asyncio.Task
    size: int = 0
    is_slow: bool = False
    is_ended: bool = False


class Bodies:
    """Reads and parses requests, and limits the memory that they use together.

    If it is used up, requests of the key that uses most of it end for those of others.
    A key may also have half of the connections. So it can only keep itself out.

    Args:
        options: the option group `server`.
    """

    def __init__(self, options):
        self._limit = int(options.max_body_mb * 1e6)
        self._limit_together = self._room = int(options.max_receiving_mb * 1e6)
        self._seconds, self._most = options.receive_timeout, options.max_connections / 2
        self._requests = {}  # by their tasks
        # Several threads would only make the event loop wait longer for Python's lock,
        # and use more memory.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "parse")
        # A key waits for its own requests, others for one of them.
        self._turns = collections.defaultdict(asyncio.Lock)

    @contextlib.contextmanager
    def counting(self, key: str) -> Iterator[None]:
        """Counts the bytes that the current task holds, until the end of the block.

        Args:
            key: name of the client's key.

        Raises:
            RequestError: another key's request needs the memory, or the key has too
                many requests.
        """
        task = asyncio.current_task()
        own = self._requests[task] = _Request(key, task)
        batching.client.set(key)
        try:
            # Waiting for the key's turn, they would hold connections that others need.
            count = sum(one.key == key for one in self._requests.values())
            if key and count > 1 + self._most:
                raise self._too_many()
            yield
        except BaseException as error:
            # Futures hold the error, and its frames the futures: such a cycle would
            # keep the body until the next garbage collection.
            traceback.clear_frames(error.__traceback__)
            if not own.is_ended or not isinstance(error, asyncio.CancelledError):
                raise
            task.uncancel()
            raise self._too_many() from None
        finally:
            del self._requests[task]

    async def read(self, request: web.Request, parse: Callable, *arguments):
        """Reads a request's body and parses it.

        Args:
            request: the request.
            parse: function of the body (bytearray) and `arguments`.

        Returns:
            The result of `parse`.

        Raises:
            RequestError: the body is compressed or too large, or arrives too slowly;
                other bodies use too much memory; or `parse` raised it.
        """
        # A few bytes could become gigabytes, or keep the event loop busy.
        if request.headers.get("Content-Encoding", "identity") != "identity":
            message = "Send the body uncompressed, without Content-Encoding."
            raise RequestError("INVALID_ARGUMENT", message, status=415)
        length = request.content_length
        if length is not None and length > self._limit:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                async for part in request.content.iter_any():
                    body += part
                    # A length that is only announced must not keep others out.
                    self.hold(len(body))
                    if len(body) > self._limit:
                        raise self._too_large()
        except TimeoutError:
            raise self._too_slow() from None
        request.protocol.body_received()
        return await self.parse(len(body), parse, body, *arguments)

    async def receive(self, message: Awaitable):
        """Waits for a message of gRPC, whose size is unknown until it has arrived.

        A message that does not arrive at once counts as one of the largest size. Such
        messages leave half of the memory to others.

        Raises:
            RequestError: it arrives too slowly, or other requests use too much memory.
        """
        arriving = asyncio.ensure_future(message)
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.wait([arriving], timeout=_AT_ONCE_SECONDS)
                if not arriving.done():
                    self.hold(self._limit, is_slow=True)
                return await arriving
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            arriving.cancel()

    async def parse(self, size: int, parse: Callable, *arguments):
        """Calls a function that takes long if the request is large.

        Large requests are parsed in a thread, in which keys take turns.

        Args:
            size: bytes of the request.
            parse: function of `arguments`.

        Returns:
            The result of `parse`.
        """
        if size <= _LARGE:
            return parse(*arguments)
        async with self._turns[batching.client.get()]:
            job = self._thread.submit(parse, *arguments)
            work = asyncio.wrap_future(job)
            try:
                return await asyncio.shield(work)
            finally:
                # If the client is gone, its bytes count until the thread has finished.
                if not job.cancel():
                    await asyncio.wait([work])

    def hold(self, size: int, *, is_slow: bool = False) -> None:
        """Sets the number of bytes that the current request holds.

        Args:
            size: bytes of the request so far. With 0, it no longer ends for others.
            is_slow: whether these are the most bytes of a message that arrives slowly.

        Raises:
            RequestError: other requests use too much memory.
        """
        own = self._requests[asyncio.current_task()]
        # Requests can only have grown by so much since all were counted.
        self._room -= size - own.size
        own.size, own.is_slow = size, is_slow
        if self._room < 0:
            requests = [*self._requests.values()]
            self._make_room(own, requests, self._limit_together)
            self._room = self._limit_together - sum(one.size for one in requests)
        if is_slow:
            slow = [one for one in self._requests.values() if one.is_slow]
            self._make_room(own, slow, self._limit_together / 2)

    def _make_room(self, own, requests, most):
        """Ends requests of keys that hold more than the own one, the last one first."""
        requests = [one for one in requests if one.size]
        while len(requests) > 1 and sum(one.size for one in requests) > most:
            sizes = collections.Counter()
            for one in requests:
                sizes[one.key] += one.size
            ((key, size),) = sizes.most_common(1)
            if size == sizes[own.key]:
                own.size = 0
                raise self._too_many()
            last = [one for one in requests if one.key == key][-1]
            last.size, last.is_ended = 0, True
            last.task.cancel()
            requests.remove(last)

    def _too_many(self):
        message = "The server is receiving too many requests."
        return RequestError("UNAVAILABLE", message, retry_after=1)

    def _too_slow(self):
        message = f"The body did not arrive within {self._seconds:g} s."
        return RequestError("DEADLINE_EXCEEDED", message, status=408)

    def _too_large(self):
        return too_large(f"A request may have at most {self._limit} bytes.")
