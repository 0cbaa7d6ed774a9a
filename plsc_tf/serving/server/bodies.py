"""Reads and parses requests and sends answers, within limits of time and memory."""

import asyncio
import collections
import contextlib
import dataclasses
import io
import traceback
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web

from plsc_tf.serving.server import batching
from plsc_tf.serving.server.errors import RequestError, too_large
from plsc_tf.serving.server.turns import Turns

# Seconds in which most messages of gRPC have arrived.
_AT_ONCE_SECONDS = 0.1
# Requests with more bytes or values are parsed outside the event loop: hundreds that
# take milliseconds may arrive at once. Answers with more bytes are sent in parts.
_LARGE, FEW = 64 * 1024, 64


@dataclasses.dataclass(eq=False)
class _Request:
    """The bytes of a request or its answer in memory; of slow messages, the most.

    If others need the memory, its task is canceled, unless it is kept.
    """

    key: str
    task: asyncio.Task
    size: int = 0
    is_slow: bool = False
    is_answer: bool = False
    is_kept: bool = False
    is_ended: bool = False


class Bodies:
    """Reads requests and sends answers, and limits the memory that they use together.

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
        self._turns = Turns()

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
        return await self.parse(len(body), body.count(b","), parse, body, *arguments)

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

    async def parse(self, size: int, count: int, parse: Callable, *arguments):
        """Calls a function that takes long if the request is large.

        Large requests are parsed in a thread, in which keys take turns.

        Args:
            size: bytes of the request.
            count: values in it, such as images or numbers, at least about.
            parse: function of `arguments`.

        Returns:
            The result of `parse`.
        """
        if size <= _LARGE and count <= FEW:
            return parse(*arguments)
        return await self._turns.call(parse, *arguments)

    async def send(self, request: web.Request, response: web.Response) -> None:
        """Sends an answer, which counts until the client has read it.

        Raises:
            RequestError: other requests use too much memory.
            ConnectionError: the client reads it too slowly, and is disconnected.
        """
        body = response.body
        self.hold(len(body), is_answer=True)
        try:
            async with asyncio.timeout(self._seconds):
                if len(body) > _LARGE:
                    # It is sent in parts. Else, asyncio copies it, and TLS again.
                    response.body = io.BytesIO(body)
                await response.prepare(request)
                await response.write_eof()
        except (TimeoutError, asyncio.CancelledError) as error:
            # No other answer can follow a part of this one.
            request.protocol.abort()
            if isinstance(error, TimeoutError):
                raise ConnectionError from error
            raise

    def hold(
        self, size: int, *, is_slow: bool = False, is_answer: bool = False
    ) -> None:
        """Sets the number of bytes that the current request holds.

        Args:
            size: bytes of the request so far. After 0, it does not end for others.
            is_slow: whether these are the most bytes of a message that arrives slowly.
            is_answer: whether these are the bytes of its answer.

        Raises:
            RequestError: other requests use too much memory.
        """
        own = self._requests[asyncio.current_task()]
        if own.is_kept:
            return
        # Requests can only have grown by so much since all were counted.
        self._room -= size - own.size
        own.size, own.is_kept = size, not size
        own.is_slow, own.is_answer = is_slow, is_answer
        if self._room < 0:
            requests = [*self._requests.values()]
            self._make_room(own, requests, self._limit_together)
            self._room = self._limit_together - sum(one.size for one in requests)
        if is_slow:
            slow = [one for one in self._requests.values() if one.is_slow]
            self._make_room(own, slow, self._limit_together / 2)

    def _make_room(self, own, requests, most):
        """Ends requests of keys that hold more than the own one, the last one first.

        Answers end before them, also those of the own key, the oldest one first.
        """
        requests = [one for one in requests if one.size]
        while len(requests) > 1 and sum(one.size for one in requests) > most:
            sizes = collections.Counter()
            for one in requests:
                sizes[one.key] += one.size
            ((key, size),) = sizes.most_common(1)
            key = own.key if size == sizes[own.key] else key
            others = [one for one in requests if one.key == key and one is not own]
            answers = [one for one in others if one.is_answer]
            if key == own.key and not answers:
                own.size = 0
                raise self._too_many()
            ended = answers[0] if answers else others[-1]
            ended.size, ended.is_ended = 0, True
            ended.task.cancel()
            requests.remove(ended)

    def _too_many(self):
        message = "The server is receiving too many requests."
        return RequestError("UNAVAILABLE", message, retry_after=1)

    def _too_slow(self):
        message = f"The body did not arrive within {self._seconds:g} s."
        return RequestError("DEADLINE_EXCEEDED", message, status=408)

    def _too_large(self):
        return too_large(f"A request may have at most {self._limit} bytes.")
