"""Shards of known sizes, written one after the other, each with its index and sum."""

from __future__ import annotations

import collections
import concurrent.futures
import hashlib
import io
import os
from collections.abc import Sequence

import numpy as np

from plsc_tf.data.conversion import vectors
from plsc_tf.data.paths import INDEX_ENDING
from plsc_tf.storage import local

_COLUMNS = 3
# Parts that are written, but not hashed yet.
_MAX_PARTS = 16
# Shards that are whole, but not on the disk yet.
_MAX_UNFLUSHED = 4


class ShardWriter:
    """Writes records to shards, and rows of their indices.

    An index is a numpy file of int64 [records, 3]: where the record's payload begins
    in the shard, its bytes, its label.

    Args:
        folder: for the files.
        names: of the shards.
        counts: records of each shard.
        lead: bytes of a record before its payload.
        state: where to go on, from `state`.
    """

    def __init__(
        self,
        folder: str,
        names: Sequence[str],
        counts: Sequence[int],
        lead: int,
        state: dict,
    ):
        self._done = list(state.get("done", []))
        self._folder = folder
        self._names = names
        self._counts = counts
        self._lead = lead
        self._file = None
        self._hasher = concurrent.futures.ThreadPoolExecutor(1)
        self._syncer = concurrent.futures.ThreadPoolExecutor(1)
        self._parts, self._unflushed = collections.deque(), collections.deque()
        self._written = sum(shard["count"] for shard in self._done)
        self._number = len(self._done)
        if self._number < len(names):
            self._open(state.get("count", 0), state.get("bytes", 0))

    @property
    def count(self) -> int:
        """Records written so far to all shards."""
        return self._written + (0 if self._file is None else self._count)

    def state(self) -> dict:
        """What JSON needs to hold for another object to go on from here.

        Whole shards are on the disk then.
        """
        self._settle(0)
        if self._file is None:
            return {"done": self._done}
        return {"done": self._done, "count": self._count, "bytes": self._bytes}

    def add(self, records: Sequence, table: np.ndarray) -> None:
        """Writes the next records.

        Args:
            records: buffers.
            table: int64 [n, 3]: bytes of the record, of its payload, label.
        """
        first = 0
        while first < len(records):
            room = self._counts[self._number] - self._count
            last = min(first + room, len(records))
            self._write(records[first:last], table[first:last])
            first = last
            if self._count == self._counts[self._number]:
                self._finish()

    def sync(self) -> None:
        """Flushes the shard that is being written, and its index, to the disk."""
        if self._file is not None:
            vectors.sync_all([self._file, self._index])

    def close(self) -> None:
        """Closes the files; an unfinished shard can be gone on with."""
        self._hasher.shutdown()
        self._syncer.shutdown()
        if self._file is not None:
            os.close(self._file)
            os.close(self._index)
            self._file = None

    def _open(self, count, size):
        number = self._number
        path = os.path.join(self._folder, self._names[number])
        header = index_header(self._counts[number])
        rows_end = len(header) + 8 * _COLUMNS * count
        flags = os.O_RDWR | os.O_CREAT
        self._file = os.open(path, flags, 0o644)
        self._index = os.open(path + INDEX_ENDING, flags, 0o644)
        os.ftruncate(self._file, size)
        os.ftruncate(self._index, rows_end)
        os.pwrite(self._index, header, 0)
        os.lseek(self._file, size, os.SEEK_SET)
        os.lseek(self._index, rows_end, os.SEEK_SET)
        self._count, self._bytes, self._sum = count, size, hashlib.sha256()
        if size:
            self._hash(_update, self._sum, self._file, size)

    def _write(self, records, table):
        for start, end in vectors.byte_spans(table[:, 0], local.WRITE_BYTES):
            data = b"".join(records[start:end])
            vectors.write_all(self._file, [data])
            self._hash(self._sum.update, data)
        ends = self._bytes + np.cumsum(table[:, 0])
        rows = np.empty((len(table), _COLUMNS), "<i8")
        rows[:, 0] = ends - table[:, 0] + self._lead
        rows[:, 1:] = table[:, 1:]
        vectors.write_all(self._index, [rows.tobytes()])
        self._count += len(table)
        self._bytes = int(ends[-1])

    def _hash(self, *call):
        """Leaves a part of the sum to the other thread; waits if that is behind."""
        self._parts.append(self._hasher.submit(*call))
        if len(self._parts) > _MAX_PARTS:
            self._parts.popleft().result()

    def _finish(self):
        """Leaves a whole shard to the other threads and opens the next one."""
        entry = {
            "name": self._names[self._number],
            "count": self._count,
            "bytes": self._bytes,
        }
        self._unflushed.append(
            self._syncer.submit(
                _flush, entry, self._sum, self._parts[-1], (self._file, self._index)
            )
        )
        self._settle(_MAX_UNFLUSHED)
        self._file, self._written = None, self._written + self._count
        self._number += 1
        if self._number < len(self._names):
            self._open(0, 0)

    def _settle(self, most):
        """Waits until at most so many shards are not on the disk."""
        while len(self._unflushed) > most:
            self._done.append(self._unflushed.popleft().result())


def read_record(folder: str, name: str, row: int, record_bytes, lead: int):
    """Returns (record, its row of a table) of a shard, finished or not.

    Args:
        folder: of the shard.
        name: of the shard.
        row: number of the record in it.
        record_bytes: maps payload bytes and label to the record's bytes.
        lead: bytes of a record before its payload.
    """
    path = os.path.join(folder, name)
    with open(path + INDEX_ENDING, "rb") as index, open(path, "rb") as file:
        index.seek(len(index_header(0)) + 8 * _COLUMNS * row)
        raw = index.read(8 * _COLUMNS)
        offset, payload_bytes, label = np.frombuffer(raw, "<i8").tolist()
        size = record_bytes(payload_bytes, label)
        file.seek(offset - lead)
        return file.read(size), np.array([[size, payload_bytes, label]])


def index_header(rows: int) -> bytes:
    """What a numpy file of int64 [rows, 3] begins with; always as many bytes."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<i8", "fortran_order": False, "shape": (rows, _COLUMNS)}
    )
    return stream.getvalue()


def _flush(entry, digest, hashed, files):
    """Closes a shard that is on the disk; returns what the manifest says of it."""
    try:
        hashed.result()
        vectors.sync_all(files)
    finally:
        for file in files:
            os.close(file)
    return {**entry, "sha256": digest.hexdigest()}


def _update(digest, file, size):
    """Adds what a shard held already when it was gone on with."""
    start = 0
    while start < size:
        part = os.pread(file, min(local.WRITE_BYTES, size - start), start)
        digest.update(part)
        start += len(part)
