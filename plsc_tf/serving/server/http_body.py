"""Reading a request's body: not too large, not too slow, not too many at once."""

import asyncio

from aiohttp import web

from plsc_tf.serving.server import json_text
from plsc_tf.serving.server.errors import RequestError
from plsc_tf.serving.server.guard import guard_of

# Larger bodies are parsed beside the event loop.
_LARGE = 256 * 1024


class Bodies:
    """Counts the bytes of bodies that are in memory."""

    def __init__(self, options):
        self._most = int(options.max_body_mb * 1e6)
        self._together = int(options.max_receiving_mb * 1e6)
        self._seconds = options.receive_timeout
        self._held = 0

    def check_length(self, request):
        """Raises RequestError when a request says that it is too large."""
        if request.content_length is not None and request.content_length > self._most:
            raise self._too_large()

    def _too_large(self):
        return RequestError("TOO_LARGE", f"A body may have {self._most} bytes.")

    async def read_json(self, request):
        """Returns the JSON object in a request's body.

        Raises:
            RequestError: it is none, too large or too slow, or there is no room now.
        """
        self.check_length(request)
        length = request.content_length
        reserved = self._most if length is None else length
        if self._held and self._held + reserved > self._together:
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

    async def expect(self, request):
        """Answers `Expect: 100-continue`, unless the body will be refused."""
        try:
            self.check_length(request)
        except RequestError as error:
            raise web.HTTPRequestEntityTooLarge(
                int(self._most), request.content_length, text=error.message
            ) from None
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
