"""Records that lie one after the other in files, read in any order."""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Callable, Sequence

import numpy as np

from plsc_tf.data import paths
from plsc_tf.storage import files, oss

# Files that stay open at the same time.
_MOST_OPEN = 256
# Bytes that may follow the last record: a checksum, or the rest of a line.
_LARGEST_REST = 32


class RandomAccessFile:
    """Reads ranges of a file, from any thread; nothing beyond its end.

    Attributes:
        path: on any store.
        size: bytes of the file.
    """

    def __init__(self, path: str):
        self.path = path
        self.size = files.size(path)
        self._file = files.open_random(path)

    def read(self, position: int, length: int) -> bytes:
        """Returns the bytes there, fewer at the end of the file."""
        return self._file.read(position, max(0, min(length, self.size - position)))


class PackedFiles:
    """Reads records by their numbers; 12 bytes of memory for each.

    Args:
        names: paths of the files.
        counts: records of each file.
        begins: int64 [n], first byte of each record's data within its file.
        lengths: int32 or int64 [n], bytes of its data.
        after: bytes after a record's data to read too.
    """

    def __init__(
        self,
        names: Sequence[str],
        counts: Sequence[int],
        begins: np.ndarray,
        lengths: np.ndarray,
        *,
        after: int = 0,
    ):
        self._names = list(names)
        self._firsts = np.cumsum([0, *counts])
        self._begins, self._lengths, self._after = begins, lengths, after
        # An evicted file is closed after the last reader is done with it.
        self._open = functools.lru_cache(_MOST_OPEN)(files.open_random)

    def __len__(self) -> int:
        return len(self._begins)

    def stamp(self) -> str:
        """A text that changes when a file does: their sizes and times."""
        stats = [(name, files.stat(name)) for name in self._names]
        return json.dumps([(oss.masked(n), s.size, s.modified_ns) for n, s in stats])

    def contents(self) -> str:
        """A text that is the same for copies of the files: the records' lengths."""
        return hashlib.sha256(memoryview(self._lengths)).hexdigest()

    def place(self, index: int) -> tuple[str, int]:
        """Returns (path of the file, number of the record within it)."""
        file = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self._names[file], int(index - self._firsts[file])

    def read(self, indices: np.ndarray) -> list[bytes]:
        """Returns the bytes of these records; for many threads at a time.

        Raises:
            EOFError: a file ends within the record; names the record.
            OSError: a file cannot be read.
        """
        numbers = np.searchsorted(self._firsts, indices, side="right") - 1
        begins = self._begins[indices].tolist()
        lengths = (self._lengths[indices] + self._after).tolist()
        records = []
        for number, begin, length in zip(
            numbers.tolist(), begins, lengths, strict=True
        ):
            record = self._open(self._names[number]).read(begin, length)
            if len(record) < length:
                path, place = self.place(int(indices[len(records)]))
                raise EOFError(
                    f"{path} ends within record {place}, which needs {length} bytes at "
                    f"byte {begin}. Has the file changed since it was opened?"
                )
            records.append(record)
        return records


def find_packed(
    names: Sequence[str], find: Callable, after: int = 0
) -> tuple[PackedFiles, np.ndarray | None]:
    """Finds the records of files by their indices or, without one, in the files.

    Args:
        names: paths of the files.
        find: maps a path to first bytes, lengths and, if known, labels of its records.
        after: see `PackedFiles`.

    Returns:
        the records, and their labels, int64 [n]; None if they are unknown.
    """
    tables = [read_index(path) or find(path) for path in names]
    begins, lengths = (
        np.concatenate([np.zeros(0, np.int64), *(table[k] for table in tables)])
        for k in range(2)
    )
    if lengths.max(initial=0) < 2**31:
        lengths = lengths.astype(np.int32)
    labels = None
    if all(len(table) == 3 for table in tables):
        labels = np.concatenate([np.zeros(0, np.int64), *(t[2] for t in tables)])
    counts = [len(table[0]) for table in tables]
    return PackedFiles(names, counts, begins, lengths, after=after), labels


def read_index(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Reads the index that `plsc_tf.convert` wrote for a file.

    Returns:
        first bytes, lengths and labels of the records, int64 [n] each; None if there
        is no index, or if it belongs to another file.
    """
    name = path + paths.INDEX_ENDING
    if not files.exists(name):
        return None
    return parse_index(files.read(name), name, files.size(path))


def parse_index(
    data: bytes, path: str, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Reads an index: a .npy file of int64 [records, 3].

    Args:
        data: the bytes of the index.
        path: of the index, for the error.
        size: bytes of the record file.

    Returns:
        see `read_index`.

    Raises:
        ValueError: it is not an index.
    """
    start = len(index_header(0))
    header = index_header((len(data) - start) // 24)
    if len(data) < start or (len(data) - start) % 24 or not data.startswith(header):
        raise ValueError(
            f"{path} is no index of {len(data)} bytes: expected a .npy file of int64 "
            f"[records, 3]. Received: {data[:start][-68:]!r}. Remove it."
        )
    begins, lengths, labels = (
        np.frombuffer(data, "<i8", offset=start).reshape(-1, 3).T.copy()
    )
    # Each by itself: a sum could overflow.
    for column in (begins, lengths):
        if len(column) and not (0 <= column.min() and column.max() <= size):
            return None
    rest = size - int((begins + lengths).max(initial=0))
    return (begins, lengths, labels) if 0 <= rest <= _LARGEST_REST else None


def index_header(rows: int) -> bytes:
    """Returns the first bytes of a .npy file of int64 [rows, 3]; always as many."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<i8", "fortran_order": False, "shape": (rows, 3)}
    )
    return stream.getvalue()
