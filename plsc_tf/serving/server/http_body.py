"""Reading a request's body: not too large, not too slow, not too many at once."""

import asyncio

from aiohttp import web

from plsc_tf.serving.server import json_text
from plsc_tf.serving.server.errors import RequestError
from plsc_tf.serving.server.guard import guard_of

# Larger bodies are parsed outside of the event loop.
_LARGE = 256 * 1024


class Bodies:
    """Counts the bytes of bodies that are in memory, within the options `server`."""

    def __init__(self, options):
        self._limit = int(options.max_body_mb * 1e6)
        self._limit_together = int(options.max_receiving_mb * 1e6)
        self._seconds = options.receive_timeout
        self._held = 0

    async def read_json(self, request: web.Request) -> dict:
        """Returns the JSON object in a request's body.

        Raises:
            RequestError: it is none, too large or too slow, or there is no room now.
        """
        length = request.content_length
        if length is not None and length > self._limit:
            raise self._too_large()
        reserved = self._limit if length is None else length
        if self._held and self._held + reserved > self._limit_together:
            raise RequestError(
                "UNAVAILABLE", "Too many requests are being received.", retry_after=1
            )
        self._held += reserved
        try:
            body = await self._read(request)
            guard = guard_of(request)
            if guard is not None:
                guard.body_received()
            if len(body) > _LARGE:
                return await asyncio.to_thread(json_text.read, body)
            return json_text.read(body)
        finally:
            self._held -= reserved

    async def _read(self, request):
        try:
            async with asyncio.timeout(self._seconds):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise self._too_large() from None
        except TimeoutError:
            raise RequestError(
                "TOO_SLOW", f"The body did not come within {self._seconds:g} s."
            ) from None

    def _too_large(self):
        return RequestError("TOO_LARGE", f"A body may have {self._limit} bytes.")

    async def expect(self, request: web.Request) -> None:
        """Answers `Expect: 100-continue`, unless the body will be refused."""
        length = request.content_length
        if length is not None and length > self._limit:
            text = self._too_large().message
            raise web.HTTPRequestEntityTooLarge(self._limit, length, text=text)
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
