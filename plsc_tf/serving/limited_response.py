"""HTTP answers that are limited in time and size, as servers may be hostile."""

import contextlib
import http.client
import io
import json
import socket
import threading
import time

# Bytes of the longest answer.
MOST_BYTES = 1 << 26
# Bytes of the longest answer that holds no embeddings.
_MOST_OTHER_BYTES = 1 << 16
# Numbers, lists and strings of the longest answer.
_MOST_PARTS = 5 << 18
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


class Connection(http.client.HTTPConnection):
    """A connection with limited answers, made within the timeout.

    `socket.create_connection` would wait that long for each of a name's addresses.
    """

    response_class = Response

    def connect(self):
        """Connects to the first of the server's addresses that answers."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        seconds = self.timeout and self.timeout / len(found)
        for number, (*_, place) in enumerate(found, 1):
            try:
                self.sock = socket.create_connection(place[:2], seconds)
                break
            except OSError:
                if number == len(found):
                    raise
        self.sock.settimeout(self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class TLSConnection(Connection, http.client.HTTPSConnection):
    """A connection whose handshake is limited in time, too."""

    def connect(self):
        """Connects to the server and does the handshake of TLS."""
        super().connect()
        options = {"server_hostname": self.host, "do_handshake_on_connect": False}
        self.sock = self._context.wrap_socket(self.sock, **options)
        with _limited(self):
            self.sock.do_handshake()


def receive(connection: http.client.HTTPConnection) -> tuple[Response, bytearray]:
    """Returns (the answer to the last request, its content), within the timeout."""
    content, piece = bytearray(), memoryview(bytearray(1 << 16))
    with _limited(connection):
        response = connection.getresponse()
        # `read` would make an object of each chunk, which may have only a byte.
        while count := response.readinto(piece):
            content += piece[:count]
    return response, content


@contextlib.contextmanager
def _limited(connection):
    """Ends a `TLSConnection` if the block takes a second more than its timeout.

    OpenSSL goes on reading messages of TLS itself, as long as there are any.
    """
    if not (connection.timeout and isinstance(connection, TLSConnection)):
        yield
        return
    timer = threading.Timer(connection.timeout + 1, _end, [connection.sock])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(sock):
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def parsed(status: int, data: bytearray):
    """Returns the JSON value of an answer; None if it is none, or may be too large."""
    # As objects of Python, a few bytes may take a hundred; in a text with one
    # character beyond ASCII, each takes four. Only embeddings are long.
    parts = sum(map(data.count, (b",", b"[", b"{", b'"')))
    most = MOST_BYTES if status == 200 and b"\\" not in data else _MOST_OTHER_BYTES
    if len(data) > most or parts > _MOST_PARTS or not data.isascii():
        return None
    try:
        return json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        return None
