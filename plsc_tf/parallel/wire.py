"""Sends JSON messages over TCP, each preceded by its length."""

import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

# Both sides send these bytes first, to detect connections with other programs.
MAGIC = b"plsc_tf\n"
# Increase this number if the messages change: workers refuse other versions.
PROTOCOL = 2
# Maximum frame size, in bytes, until the other side is known to be a worker.
HELLO_BYTES = 1 << 20
_LENGTH = struct.Struct(">Q")


class StrangerError(ConnectionError):
    """The other side of the connection is not a worker."""


def encode(message: Any) -> bytes:
    """Returns the message as JSON bytes."""
    return json.dumps(message, separators=(",", ":")).encode()


class Connection:
    """A TCP connection that carries frames.

    Args:
        sock: the connected socket.

    Attributes:
        max_bytes: maximum size of a received frame, in bytes.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.max_bytes = HELLO_BYTES
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # This socket's local port may be another worker's port, on which that worker
        # must still be able to listen.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def wait_for_ever(self) -> None:
        """Removes the time limit that an earlier call has set."""
        self._socket.settimeout(None)

    def greet(self, timeout_s: float) -> None:
        """Exchanges `MAGIC` with the other side.

        Raises:
            StrangerError: the other side sends something else.
            OSError, EOFError: the other side does not answer.
        """
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(MAGIC)
            answer = self._read(len(MAGIC), time.monotonic() + timeout_s)
        except TimeoutError:
            raise TimeoutError("it accepts connections but does not answer") from None
        if answer != MAGIC:
            raise StrangerError(f"it answered {answer!r}, so it is another program")

    def send(self, message: Any) -> None:
        """Sends a message; blocks until the operating system has accepted it."""
        self.send_frame(encode(message))

    def send_frame(self, frame: bytes) -> None:
        """Sends bytes as one frame."""
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Returns the next message.

        Raises:
            EOFError: the other side has closed the connection.
            TimeoutError: no complete message arrived in time.
            OSError: the connection is broken.
            ValueError: the received bytes are not a message, or the message is too
                long.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if length > self.max_bytes:
            raise ValueError(f"a message of {length} bytes is too long")
        return json.loads(self._read(length, deadline))

    def is_open(self) -> bool:
        """Returns whether the other side has not closed the connection.

        Call it only while the other side sends nothing.
        """
        self._socket.setblocking(False)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.settimeout(None)

    def end_sending(self) -> None:
        """Tells the other side that no more messages will follow."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the connection is broken

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _read(self, size, deadline):
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
            count = self._socket.recv_into(view[done:])
            if not count:
                raise EOFError("the connection was closed")
            done += count
        return bytes(data)


class Peer:
    """A connection with a reading thread and a writing thread.

    `send` therefore never blocks, even if the other side has stopped reading.

    Args:
        connection: a `Connection`.
        name: the other side's name, used in the threads' names.
        on_message: called with each message, in the reading thread.
        on_end: called without arguments, in the reading thread, when the connection has
            ended.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        on_message: Callable[[Any], None],
        on_end: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._on_message, self._on_end = on_message, on_end
        self._outbox: queue.SimpleQueue = queue.SimpleQueue()
        self._reader = threading.Thread(
            target=self._read, name=f"from {name}", daemon=True
        )
        self._writer = threading.Thread(
            target=self._write, name=f"to {name}", daemon=True
        )

    def start(self) -> None:
        """Starts the threads."""
        self._connection.wait_for_ever()
        self._reader.start()
        self._writer.start()

    def send(self, frame: bytes) -> None:
        """Queues a frame, as returned by `encode`, for sending."""
        self._outbox.put(frame)

    def all_sent(self) -> threading.Event:
        """Returns an event that is set once all frames queued so far have been sent."""
        sent = threading.Event()
        self._outbox.put(sent)
        return sent

    def close(self, timeout_s: float) -> None:
        """Sends the queued frames, waits for the other side to close, and closes.

        Args:
            timeout_s: maximum seconds for sending, and again for waiting.
        """
        self._outbox.put(None)
        self._writer.join(timeout_s)
        self._connection.end_sending()
        self._reader.join(timeout_s)
        self._connection.close()

    def _read(self):
        try:
            while True:
                self._on_message(self._connection.receive())
        except (OSError, EOFError, ValueError):
            self._on_end()

    def _write(self):
        broken = False
        while (item := self._outbox.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            elif not broken:
                try:
                    self._connection.send_frame(item)
                except OSError:
                    broken = True  # the reading thread reports the end
