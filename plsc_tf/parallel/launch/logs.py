"""The workers' log files, and the display of their output in the terminal."""

import os
import select
import tempfile
import time
from collections.abc import Iterable, Mapping

from plsc_tf.parallel.worker_lost import WRITE_S
from plsc_tf.requirements import require

_STANDARD_OUTPUT = 1
_TAIL_BYTES = 1 << 16


class Log:
    """The file to which a worker writes its output; the launcher reads it.

    The worker writes directly to the file, so its output does not depend on the
    launcher.

    Args:
        path: path of the file, to which output is appended; None for a temporary file.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        # Not closed explicitly: it is used until the process ends.
        # In a folder that others may write to, a link could lead to any file.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        place = os.open(path, flags, 0o666) if path else None
        alone = not place or os.fstat(place).st_nlink == 1
        require(alone, f"{path} has other names (hard links)", "Replace it by a copy")
        self._file = open(place, "a+b") if place else tempfile.TemporaryFile("a+b")
        self._start = self._shown = 0

    def fileno(self) -> int:
        """Returns the file descriptor to which a worker writes."""
        return self._file.fileno()

    def begin(self, title: str) -> None:
        """Marks the start of an attempt with a title line."""
        line = f"==== {title}, {time.strftime('%Y-%m-%d %H:%M:%S')} ====\n"
        os.write(self.fileno(), line.encode())
        self._start = self._shown = os.fstat(self.fileno()).st_size

    def new(self, whole_lines: bool = False) -> bytes:
        """Returns the bytes written since the last call.

        Args:
            whole_lines: whether to leave the unfinished last line to the next call.
        """
        count = os.fstat(self.fileno()).st_size - self._shown
        content = os.pread(self.fileno(), max(count, 0), self._shown)
        if whole_lines:
            content = content[: content.rfind(b"\n") + 1]
        self._shown += len(content)
        return content

    def last_lines(self, count: int) -> list[str]:
        """Returns the last `count` lines of this attempt."""
        start = max(self._start, os.fstat(self.fileno()).st_size - _TAIL_BYTES)
        content = os.pread(self.fileno(), _TAIL_BYTES, start)
        return content.decode(errors="replace").splitlines()[-count:]


def open_logs(folder: str, indices: Iterable[int]) -> dict[int, Log]:
    """Returns {worker index: `Log`}.

    Args:
        folder: folder of the files worker-0.log and so on; empty for temporary files.
        indices: the workers' indices.

    Raises:
        ValueError: the folder is not a local path, or is a link.
        OSError: a file cannot be written.
    """
    if "://" in folder:
        raise ValueError(f"log_dir must be a local folder. Received: {folder!r}.")
    if folder:
        os.makedirs(folder, exist_ok=True)
        link = os.path.islink(os.path.abspath(folder))
        require(not link, f"log_dir, {folder!r}, must not be a link. Name its target")
    return {i: Log(folder and os.path.join(folder, f"worker-{i}.log")) for i in indices}


class Screen:
    """Copies the workers' output to the terminal as it is written.

    Args:
        logs: {worker index: `Log`} to show. The output of a single worker is shown
            unchanged; with several workers, each line starts with the worker's index.
    """

    def __init__(self, logs: Mapping[int, Log]) -> None:
        self._logs = logs
        self._unwritten = memoryview(b"")

    def shows_only(self, index: int) -> bool:
        """Returns whether this worker's log is the only one shown."""
        return set(self._logs) == {index}

    def show(self, last: bool = False) -> None:
        """Shows the new output of all logs.

        Args:
            last: True in the last call; with several logs, unfinished lines are shown
                only then.
        """
        several = len(self._logs) > 1
        for i, log in self._logs.items():
            if not self._write(last):
                return
            content = log.new(whole_lines=several and not last)
            if several and content:
                lines = content.removesuffix(b"\n").split(b"\n")
                content = b"".join(b"[%d] %s\n" % (i, line) for line in lines)
            self._unwritten = memoryview(content)
        self._write(last)

    def _write(self, last):
        """Writes what the terminal takes; returns whether that is everything.

        If nobody reads it (`| less`), the launcher must still end and restart workers.
        """
        terminal, seconds = [_STANDARD_OUTPUT], WRITE_S if last else 0.0
        try:
            while self._unwritten and select.select([], terminal, [], seconds)[1]:
                count = os.write(_STANDARD_OUTPUT, self._unwritten[: select.PIPE_BUF])
                self._unwritten = self._unwritten[count:]
        except OSError:
            # The reader of a pipe has ended (`| head`); training continues.
            self._logs = {}
        return not self._unwritten
