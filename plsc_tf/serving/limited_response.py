"""HTTP answers that are limited in time and size, as servers may be hostile."""

import http.client
import io
import time

# Bytes of the longest answer.
MOST_BYTES = 1 << 26
# Seconds to wait for an answer without a timeout.
_WITHOUT_TIMEOUT = 1e6


class _Receiver(io.RawIOBase):
    """Receives an answer within the socket's timeout and `MOST_BYTES`.

    The socket's own timeout would begin again with each byte.
    """

    def __init__(self, sock, raw):
        self._sock, self._raw = sock, raw
        self._end = time.monotonic() + (sock.gettimeout() or _WITHOUT_TIMEOUT)
        self._left = MOST_BYTES

    def readable(self):
        """Returns True, which the buffer asks for."""
        return True

    def readinto(self, buffer):
        """Receives bytes; returns their number."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(seconds)
        count = self._raw.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise OSError(f"the answer has more than {MOST_BYTES} bytes")
        return count

    def close(self):
        """Gives the socket back."""
        self._raw.close()
        super().close()


class Response(http.client.HTTPResponse):
    """An answer that `_Receiver` limits."""

    def __init__(self, sock, *arguments, **options):
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Receiver(sock, self.fp.detach()))
