"""Sends JSON messages over TCP, each preceded by its length and a signature.

Both sides know the cluster's secret. Each connection has its own keys, which depend on
random bytes of both sides, and the signature covers the message's number, so that a
message of another connection, or one that is repeated, is not accepted.
"""

import asyncio
import errno
import hmac
import json
import secrets
import socket
import struct
from typing import Any

from plsc_tf.parallel import addresses

# Both sides send these bytes first, to detect connections with other programs.
MAGIC = b"plsc_tf\n"
# Increase this number if the messages change: workers refuse other versions.
PROTOCOL = 7
# Maximum size of a message, in bytes, until the other side is known to be a worker.
HELLO_BYTES = 1 << 16
_LENGTH = struct.Struct(">Q")
_NONCE_BYTES = _SIGNATURE_BYTES = 32


class SignatureError(OSError):
    """The other side does not know the cluster's secret."""


def encode(message: Any) -> bytes:
    """Returns the message as JSON bytes."""
    return json.dumps(message, separators=(",", ":")).encode()


class Connection:
    """A TCP connection that carries messages; use it in its event loop's thread.

    Args:
        reader: the connection's incoming stream.
        writer: the connection's outgoing stream.
        secret: the cluster's secret; see `plsc_tf.parallel.cluster`.
        opened: whether this side opened the connection.

    Attributes:
        max_bytes: maximum size of a received message, in bytes.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        secret: bytes,
        *,
        opened: bool = False,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._secret, self._opened = secret, opened
        self._sent = self._received = 0
        self.max_bytes = HELLO_BYTES
        # This socket's local port may be another worker's port, on which that worker
        # must still be able to listen.
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    @classmethod
    async def open(cls, address: str, timeout_s: float, secret: bytes) -> "Connection":
        """Connects to a worker and greets it.

        Raises:
            OSError, EOFError: the worker cannot be reached or does not answer, or
                another program listens there.
        """
        place = addresses.split(address)
        streams = await asyncio.wait_for(asyncio.open_connection(*place), timeout_s)
        connection = cls(*streams, secret, opened=True)
        try:
            names = map(streams[1].get_extra_info, ("sockname", "peername"))
            if len(set(names)) == 1:
                # If no process listens, TCP may connect a socket to itself.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
            await asyncio.wait_for(connection.greet(), timeout_s)
        except (OSError, EOFError) as error:
            connection.close()
            if isinstance(error, TimeoutError):
                problem = "it accepts connections but does not answer"
                raise TimeoutError(problem) from None
            raise
        return connection

    async def greet(self) -> None:
        """Exchanges `MAGIC` and random bytes, and derives the keys.

        Raises like `open`.
        """
        own = secrets.token_bytes(_NONCE_BYTES)
        self._writer.write(MAGIC + own)
        if (answer := await self._reader.readexactly(len(MAGIC))) != MAGIC:
            raise OSError(f"another program listens there and sent {answer!r}")
        other = await self._reader.readexactly(_NONCE_BYTES)
        nonces = own + other if self._opened else other + own
        senders = (b"opener", b"listener")
        keys = [hmac.digest(self._secret, nonces + one, "sha256") for one in senders]
        self._own_key, self._other_key = keys if self._opened else reversed(keys)

    def send(self, message: bytes) -> None:
        """Sends a message from `encode`; never blocks."""
        signature = _sign(self._own_key, self._sent, message)
        self._sent += 1
        self._writer.write(_LENGTH.pack(len(message)) + signature + message)

    async def receive(self) -> Any:
        """Returns the next message.

        Raises:
            EOFError: the other side has closed the connection.
            OSError: the connection is broken; or, as a `SignatureError`, the other side
                does not know the secret.
            ValueError: the received bytes are not a message, or the message is too
                long.
        """
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if length > self.max_bytes:
            raise ValueError(f"a message of {length} bytes is too long")
        signature = await self._reader.readexactly(_SIGNATURE_BYTES)
        message = await self._reader.readexactly(length)
        expected = _sign(self._other_key, self._received, message)
        if not hmac.compare_digest(signature, expected):
            raise SignatureError("it does not know the secret of this cluster")
        self._received += 1
        return json.loads(message)

    def is_open(self) -> bool:
        """Returns whether the other side has not closed the connection."""
        return not self._reader.at_eof() and self._reader.exception() is None

    def end_sending(self) -> None:
        """Tells the other side that no more messages will follow."""
        if not self._writer.transport.is_closing():
            self._writer.write_eof()

    def close(self) -> None:
        """Sends the remaining messages and closes the connection."""
        self._writer.close()


def _sign(key, number, message):
    return hmac.digest(key, _LENGTH.pack(number) + message, "sha256")
