"""Files of records with an index: the buckets of a shuffle, and the finished shards.

An index is a numpy file of int64 [records, 3]: first byte of the record's payload, its
bytes, its label. Arrays called `table` are int64 [n, 3], too: bytes of the whole
record, bytes of its payload, label.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence

import numpy as np

from plsc_tf.data.paths import INDEX_ENDING
from plsc_tf.data.records.packed_files import index_header
from plsc_tf.storage import local

_ROW_BYTES = 24


class RecordFile:
    """Appends records to a file, and rows to its index.

    Args:
        path: of the file; what it holds beyond `count` and `size` is cut off.
        lead: bytes of a record before its payload.
        count: records to keep.
        size: bytes to keep.
    """

    def __init__(self, path: str, lead: int, count: int = 0, size: int = 0):
        self.path, self.count, self.size = path, count, size
        self._lead = lead
        index_bytes = len(index_header(0)) + _ROW_BYTES * count
        for name, length in ((path, size), (path + INDEX_ENDING, index_bytes)):
            with open(name, "ab") as file:
                file.truncate(length)

    def add(self, records: Sequence, table: np.ndarray) -> None:
        """Appends records, which are buffers."""
        ends = self.size + np.cumsum(table[:, 0])
        rows = np.array(table, "<i8")
        rows[:, 0] = ends - table[:, 0] + self._lead
        _append(self.path, b"".join(records))
        _append(self.path + INDEX_ENDING, rows.tobytes())
        self.count += len(table)
        self.size = int(ends[-1])

    def sync(self) -> None:
        """Flushes file and index to the disk."""
        with open(self.path + INDEX_ENDING, "r+b", buffering=0) as index:
            index.write(index_header(self.count))
            os.fsync(index.fileno())
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())


class ShardWriter:
    """Writes records to files of known numbers of records, one after the other.

    Args:
        paths: of the shards.
        counts: records of each shard.
        lead: bytes of a record before its payload.
        count: records written before, to all shards together.
        size: bytes written before, to the last of these.
    """

    def __init__(
        self,
        paths: Sequence[str],
        counts: Sequence[int],
        lead: int,
        count: int = 0,
        size: int = 0,
    ):
        self.count = count
        self._paths, self._lead = paths, lead
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self._open(size)

    @property
    def size(self) -> int:
        """Bytes of the shard that is being written."""
        return self._file.size if self._file else 0

    def add(self, records: Sequence, table: np.ndarray) -> None:
        """Writes the next records; there must be room for them."""
        while len(records):
            room = self._ends[self._number] - self.count
            self._file.add(records[:room], table[:room])
            self.count += len(table[:room])
            records, table = records[room:], table[room:]
            if self.count == self._ends[self._number]:
                self.sync()
                self._open()

    def sync(self) -> None:
        """Flushes all records to the disk."""
        if self._file:
            self._file.sync()

    def read(self, row: int) -> tuple[bytes, np.ndarray]:
        """Returns a record that was written, and its table of one row."""
        number = int(np.searchsorted(self._ends, row, side="right"))
        path, place = self._paths[number], row - int(self._starts[number])
        rows = np.fromfile(
            path + INDEX_ENDING,
            "<i8",
            count=6,
            offset=len(index_header(0)) + _ROW_BYTES * place,
        ).reshape(-1, 3)
        ends = [*(rows[1:, 0] - self._lead), os.path.getsize(path)]
        start = int(rows[0, 0]) - self._lead
        with open(path, "rb") as file:
            file.seek(start)
            record = file.read(ends[0] - start)
        return record, np.array([[len(record), *rows[0, 1:]]])

    def _open(self, size=0):
        """Opens the shard of the next record, if there is one."""
        self._number = int(np.searchsorted(self._ends, self.count, side="right"))
        self._file = None
        if self._number < len(self._paths):
            count = self.count - int(self._starts[self._number])
            path = self._paths[self._number]
            self._file = RecordFile(path, self._lead, count, size)


def read_records(
    path: str, lead: int, order: np.ndarray
) -> Iterator[tuple[list[memoryview], np.ndarray]]:
    """Yields (records, table) of a file in some order, about a megabyte at a time.

    The file is mapped: how much of it is in memory is up to the system.

    Args:
        path: of the file, which is not empty.
        lead: bytes of a record before its payload.
        order: numbers of the records.
    """
    table = np.load(path + INDEX_ENDING)
    starts = table[:, 0] - lead
    table[:, 0] = np.diff(starts, append=os.path.getsize(path))
    table, starts = table[order], starts[order]
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_WILLNEED)
    view = memoryview(mapped)
    megabytes = np.cumsum(table[:, 0]) // local.WRITE_BYTES
    for rows in np.split(np.arange(len(table)), np.flatnonzero(np.diff(megabytes)) + 1):
        places = zip(starts[rows].tolist(), table[rows, 0].tolist(), strict=True)
        yield [view[start : start + size] for start, size in places], table[rows]


def _append(path, data):
    view = memoryview(data)
    with open(path, "ab", buffering=0) as file:
        while view:
            view = view[file.write(view[: local.WRITE_BYTES]) :]
