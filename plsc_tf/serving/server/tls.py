"""TLS for HTTP."""

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Callable

from plsc_tf.serving.server.guard import READ_BYTES

# Records that a connection may send, more for each request, and bytes for one more.
_RECORDS, _RECORDS_EACH, _RECORD_BYTES = 64, 8, 512
# Bytes of a record's type, version and length.
_HEADER = 5


class Tls(sslproto.SSLProtocol):
    """asyncio's TLS, with limits of what it hides from the protocol that uses it.

    It decrypts records without data, such as updates of keys (RFC 8446, 4.6.3), and
    keeps encrypted answers that the client does not read.
    """

    # asyncio allocates a buffer of this size before the handshake.
    max_size = READ_BYTES
    _rest, _place, _received, _records = b"", 0, 0, 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Starts the handshake."""
        transport.set_write_buffer_limits(0)
        super().connection_made(transport)

    def buffer_updated(self, nbytes: int) -> None:
        """Reads records; ends a connection whose records are too many."""
        data, place = self._rest + bytes(self._ssl_buffer_view[:nbytes]), self._place
        while place + _HEADER <= len(data):
            place += _HEADER + int.from_bytes(data[place + 3 : place + _HEADER])
            self._records += 1
        self._rest, self._place = data[place:], max(0, place - len(data))
        self._received += nbytes
        most = _RECORDS + _RECORDS_EACH * self._app_protocol.num_requests
        if self._records > most + self._received // _RECORD_BYTES:
            self._transport.abort()
        else:
            super().buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        """Drops a connection that its client closed while requests were waiting.

        Their answers could not be sent, and asyncio would log a line for each.
        """
        if self._app_reading_paused:
            self._transport.abort()
        return super().eof_received()

    def _get_write_buffer_size(self):
        size = self._transport.get_write_buffer_size() if self._transport else 0
        return size + super()._get_write_buffer_size()


def make_context(options) -> ssl.SSLContext | None:
    """Returns the context of `wrap`; None without a certificate.

    Args:
        options: the option group `server`.

    Raises:
        ValueError: the files cannot be used.
    """
    if not options.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key.
        context.load_cert_chain(options.tls_certificate, options.tls_key, password="")
    except OSError as error:
        raise ValueError(
            "tls_certificate and tls_key must be PEM files that belong together, the "
            f"key without a password. Received: {options.tls_certificate!r} and "
            f"{options.tls_key!r}: {error}."
        ) from error
    return context


def wrap(make: Callable, context: ssl.SSLContext, options) -> asyncio.BaseProtocol:
    """Returns a protocol of a new connection, which `make` makes, with TLS around."""
    # asyncio's own limits are longer.
    limits = {"ssl_handshake_timeout": min(5.0, options.receive_timeout)}
    limits["ssl_shutdown_timeout"] = 2.0
    loop = asyncio.get_running_loop()
    return Tls(loop, make(), context, None, server_side=True, **limits)
