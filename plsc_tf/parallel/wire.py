"""Sends JSON messages over TCP, each preceded by its length."""

import asyncio
import errno
import json
import socket
import struct
from typing import Any

from plsc_tf.parallel import addresses

# Both sides send these bytes first, to detect connections with other programs.
MAGIC = b"plsc_tf\n"
# Increase this number if the messages change: workers refuse other versions.
PROTOCOL = 3
# Maximum size of a message, in bytes, until the other side is known to be a worker.
HELLO_BYTES = 1 << 20
_LENGTH = struct.Struct(">Q")


def encode(message: Any) -> bytes:
    """Returns the message as JSON bytes."""
    return json.dumps(message, separators=(",", ":")).encode()


class Connection:
    """A TCP connection that carries messages; use it in its event loop's thread.

    Args:
        reader: the connection's incoming stream.
        writer: the connection's outgoing stream.

    Attributes:
        max_bytes: maximum size of a received message, in bytes.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader, self._writer = reader, writer
        self.max_bytes = HELLO_BYTES
        # This socket's local port may be another worker's port, on which that worker
        # must still be able to listen.
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    @classmethod
    async def open(cls, address: str, timeout_s: float) -> "Connection":
        """Connects to a worker and exchanges `MAGIC` with it.

        Raises:
            OSError, EOFError: the worker cannot be reached or does not answer, or
                another program listens there.
        """
        place = addresses.split(address)
        streams = await asyncio.wait_for(asyncio.open_connection(*place), timeout_s)
        connection = cls(*streams)
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
        """Exchanges `MAGIC` with the other side; raises like `open`."""
        self._writer.write(MAGIC)
        answer = await self._reader.readexactly(len(MAGIC))
        if answer != MAGIC:
            raise OSError(f"another program listens there and sent {answer!r}")

    def send(self, message: bytes) -> None:
        """Sends a message from `encode`; never blocks."""
        self._writer.write(_LENGTH.pack(len(message)) + message)

    async def receive(self) -> Any:
        """Returns the next message.

        Raises:
            EOFError: the other side has closed the connection.
            OSError: the connection is broken.
            ValueError: the received bytes are not a message, or the message is too
                long.
        """
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if length > self.max_bytes:
            raise ValueError(f"a message of {length} bytes is too long")
        return json.loads(await self._reader.readexactly(length))

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
