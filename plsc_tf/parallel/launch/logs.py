"""The output of the workers: a file for each, and what the terminal shows of them."""

import os
import tempfile
import time
from collections.abc import Iterable, Mapping

_CHUNK = 1 << 20
_TAIL_BYTES = 1 << 16


class Log:
    """Where a worker writes; the launcher reads it again.

    The worker writes to the file itself, so its output does not depend on the launcher
    to go on.

    Args:
        path: of the file, which is added to; None: one that has no name.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        # Closed with the process: a log is written to until then.
        self._file = open(path, "a+b") if path else tempfile.TemporaryFile("a+b")
        self._start = self._shown = 0

    def fileno(self) -> int:
        """Returns the descriptor that a worker writes to."""
        return self._file.fileno()

    def begin(self, title: str) -> None:
        """Starts an attempt with a line of its own."""
        line = f"==== {title}, {time.strftime('%Y-%m-%d %H:%M:%S')} ====\n"
        os.write(self.fileno(), line.encode())
        self._start = self._shown = os.fstat(self.fileno()).st_size

    def new(self) -> bytes:
        """Returns the bytes that were written since the last call."""
        parts = []
        while part := os.pread(self.fileno(), _CHUNK, self._shown):
            self._shown += len(part)
            parts.append(part)
        return b"".join(parts)

    def last_lines(self, count: int) -> list[str]:
        """Returns the last lines of this attempt."""
        size = os.fstat(self.fileno()).st_size
        start = max(self._start, size - _TAIL_BYTES)
        content = os.pread(self.fileno(), _TAIL_BYTES, start)
        return content.decode(errors="replace").splitlines()[-count:]


def open_logs(folder: str, indices: Iterable[int]) -> dict[int, Log]:
    """Returns a dict from the index of each worker to its `Log`.

    Args:
        folder: that the files worker-0.log and so on are in; empty: no files.
        indices: of the workers.

    Raises:
        ValueError: the folder is on another file system.
        OSError: a file cannot be written.
    """
    if "://" in folder:
        raise ValueError(f"log_dir must be a local folder. Received: {folder!r}.")
    if folder:
        os.makedirs(folder, exist_ok=True)
    return {
        i: Log(os.path.join(folder, f"worker-{i}.log") if folder else None)
        for i in indices
    }


class Screen:
    """Shows what workers write, as it comes.

    Args:
        logs: dict from index to the `Log`s to show. A single one is shown as it is, of
            several each line begins with the worker's index.
        descriptor: that is written to.
    """

    def __init__(self, logs: Mapping[int, Log], descriptor: int = 1) -> None:
        self._logs = logs
        self._descriptor = descriptor
        self._begun = {i: b"" for i in logs}

    def shows_only(self, index: int) -> bool:
        """Whether this worker's output is all that is shown."""
        return set(self._logs) == {index}

    def show(self, last: bool = False) -> None:
        """Shows what is new; lines that have no end yet only when it is the last."""
        for i, log in self._logs.items():
            content = self._begun[i] + log.new()
            self._begun[i] = b""
            if len(self._logs) > 1:
                content, self._begun[i] = _with_index(i, content, last)
            self._write(content)

    def _write(self, content):
        try:
            while content:
                content = content[os.write(self._descriptor, content) :]
        except OSError:
            # The reader is gone (`| head`); the training goes on.
            self._logs = {}


def _with_index(index, content, last):
    """Returns (whole lines with their worker's index, the begun line after them)."""
    whole, newline, begun = content.rpartition(b"\n")
    if last and begun:
        whole, newline, begun = content, b"\n", b""
    lines = whole.split(b"\n") if newline else []
    return b"".join(b"[%d] %s\n" % (index, line) for line in lines), begun
