"""JSON messages over a TCP connection, each with its length in front."""

import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

# Both sides send it first, to recognize other programs.
MAGIC = b"plsc_tf\n"
# Changes with the messages: workers of different versions refuse each other.
PROTOCOL = 2
# The longest frame of a caller that has not identified itself, in bytes.
HELLO_BYTES = 1 << 20
_LENGTH = struct.Struct(">Q")


class StrangerError(ConnectionError):
    """The other side is no worker."""


def encode(message: Any) -> bytes:
    """Returns the message as JSON, in bytes."""
    return json.dumps(message, separators=(",", ":")).encode()


class Connection:
    """A TCP connection that carries frames.

    Args:
        sock: the connected socket.

    Attributes:
        max_bytes: the longest frame that is accepted.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.max_bytes = HELLO_BYTES
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The port may be another worker's: it must be able to listen there.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def wait_for_ever(self) -> None:
        """Lifts the time limits of earlier calls."""
        self._socket.settimeout(None)

    def greet(self, timeout_s: float) -> None:
        """Exchanges the magic.

        Raises:
            StrangerError: the other side answers with something else.
            OSError, EOFError: it does not answer at all.
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
        """Sends a message; waits until the system has taken it."""
        self.send_frame(encode(message))

    def send_frame(self, frame: bytes) -> None:
        """Sends bytes as one frame."""
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Returns the next message.

        Raises:
            EOFError: the other side has closed the connection.
            TimeoutError: no whole message came in time.
            OSError: the connection is broken.
            ValueError: what came is no message, or too long.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if length > self.max_bytes:
            raise ValueError(f"a message of {length} bytes is too long")
        return json.loads(self._read(length, deadline))

    def is_open(self) -> bool:
        """Whether the other side, which is silent for now, has the connection open."""
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
        """Tells the other side that nothing more will come."""
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
    """A connection with a thread that reads and one that writes.

    So a peer that has stopped reading never makes the sender wait.

    Args:
        connection: a `Connection`.
        name: for the threads' names.
        on_message: called with each message, in the reading thread.
        on_end: called without arguments when nothing more will come.
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
        """Puts a frame, which `encode` made, into the outbox."""
        self._outbox.put(frame)

    def all_sent(self) -> threading.Event:
        """Returns a `threading.Event` of the moment when the outbox will be empty."""
        sent = threading.Event()
        self._outbox.put(sent)
        return sent

    def close(self, timeout_s: float) -> None:
        """Sends what is in the outbox, waits for the other side's end, and closes."""
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
                    broken = True  # the reading thread finds out, too
