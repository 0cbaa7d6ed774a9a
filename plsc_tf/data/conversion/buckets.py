"""The two halves of a shuffle of more records than memory holds.

Each record goes to a bucket drawn at random; later each bucket is put into a random
order, and the buckets follow one another. That gives every order the same chance:
Rao 1961, Sandelius 1962 ("A simple randomization procedure"). What is drawn follows
from the seed and the number of the record, not from the memory or from interruptions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from plsc_tf.data.conversion import vectors
from plsc_tf.storage import local

# Draws are made so many at a time, so that they can start anywhere.
_DRAWS = 1 << 16
_BUCKET, _ORDER = 1, 2
_COLUMNS = 3


class Buckets:
    """Files of blocks: count, table [count, 3] of int64, records.

    The columns are: bytes of the record, bytes of its payload, label.

    Args:
        folder: for the files.
        num_buckets: how many.
        seed: of the shuffle.
        state: where to go on, from `state`.
    """

    def __init__(self, folder: str, num_buckets: int, seed: int, state: dict):
        self.count = state.get("count", 0)
        self.sizes = state.get("sizes", [0] * num_buckets)
        self._draws = Draws(len(self.sizes), seed)
        self._touched = set()
        self._files = []
        for number, size in enumerate(self.sizes):
            file = os.open(bucket_path(folder, number), os.O_RDWR | os.O_CREAT, 0o644)
            self._files.append(file)
            os.ftruncate(file, size)
            os.lseek(file, size, os.SEEK_SET)

    def add(self, records, payload_bytes, labels) -> None:
        """Adds the next records; arguments as the attributes of `Batch`."""
        table = np.empty((len(records), _COLUMNS), np.int64)
        table[:, 0] = [len(record) for record in records]
        table[:, 1] = payload_bytes
        table[:, 2] = labels
        drawn = self._draws.draw(self.count, len(records))
        order = np.argsort(drawn, kind="stable")
        table = table[order]
        ends = np.cumsum(np.bincount(drawn, minlength=len(self.sizes))).tolist()
        order, start = order.tolist(), 0
        for number, end in enumerate(ends):
            if end > start:
                block = table[start:end]
                header = np.int64(end - start).tobytes() + block.tobytes()
                pieces = [header, *(records[row] for row in order[start:end])]
                vectors.write_all(self._files[number], pieces)
                self.sizes[number] += len(header) + int(block[:, 0].sum())
                self._touched.add(number)
            start = end
        self.count += len(records)

    def state(self) -> dict:
        """What JSON needs to hold for another object to go on from here."""
        return {"count": self.count, "sizes": self.sizes}

    def sync(self) -> None:
        """Flushes what was added to the disk."""
        vectors.sync_all([self._files[number] for number in self._touched])
        self._touched.clear()

    def close(self) -> None:
        """Closes all files."""
        while self._files:
            os.close(self._files.pop())


class Draws:
    """The buckets of records, drawn at random; they follow from seed and number.

    Args:
        num_buckets: how many there are.
        seed: of the shuffle.
    """

    def __init__(self, num_buckets: int, seed: int):
        self._num_buckets = num_buckets
        self._seed = seed
        self._block = (-1, None)

    def draw(self, first: int, count: int) -> np.ndarray:
        """The buckets of records `[first, first + count)`."""
        found = [np.empty(0, np.int16)]
        while count:
            block, start = divmod(first, _DRAWS)
            if self._block[0] != block:
                random = np.random.default_rng([self._seed, _BUCKET, block])
                draws = random.integers(0, self._num_buckets, _DRAWS)
                self._block = block, draws.astype(np.int16)
            part = self._block[1][start : start + count]
            found.append(part)
            first, count = first + len(part), count - len(part)
        return np.concatenate(found)


def order_within(number: int, count: int, seed: int) -> np.ndarray:
    """The order of the records of a bucket, int64 [count]."""
    return np.random.default_rng([seed, _ORDER, number]).permutation(count)


class BucketReader:
    """Reads buckets in their final order.

    Args:
        folder: of the buckets.
        seed: of the shuffle; None keeps the order.
        memory_bytes: a larger bucket is read record by record.
    """

    def __init__(self, folder: str, seed: int | None, memory_bytes: int):
        self._folder = folder
        self._seed = seed
        self._memory_bytes = memory_bytes
        # Used in turn, because the system takes long to hand out new memory.
        self._buffers = [bytearray(), bytearray()]

    def read_all(self, numbers: Iterable[int]) -> Iterator[tuple]:
        """Yields (number of the bucket, records, rows of the table).

        Records are valid until those of the bucket after the next are asked for.
        """
        for number in numbers:
            for records, table in self._read(number):
                yield number, records, table

    def _read(self, number):
        path = bucket_path(self._folder, number)
        size = os.path.getsize(path)
        with open(path, "rb", buffering=0) as file:
            table, starts = _tables(file.fileno(), size)
            if self._seed is not None:
                order = order_within(number, len(table), self._seed)
                table, starts = table[order], starts[order]
            fetch = self._load(file, size)
            for begin, end in vectors.byte_spans(table[:, 0], local.WRITE_BYTES):
                places = starts[begin:end].tolist(), table[begin:end, 0].tolist()
                yield list(map(fetch, *places)), table[begin:end]

    def _load(self, file, size):
        """A function of (start, length) that returns these bytes of the bucket."""
        if size > self._memory_bytes:
            return lambda start, length: os.pread(file.fileno(), length, start)
        self._buffers.reverse()
        if size > len(self._buffers[0]):
            self._buffers[0] = bytearray(size + size // 8)
        view = memoryview(self._buffers[0])[:size]
        vectors.read_into(file, view)
        return lambda start, length: view[start : start + length]


def bucket_path(folder: str, number: int) -> str:
    """The file of a bucket."""
    return os.path.join(folder, f"bucket_{number}")


def _tables(file, size):
    """The rows of all blocks, and where their records begin."""
    tables, starts, at = [np.empty((0, _COLUMNS), np.int64)], [np.empty(0, np.int64)], 0
    while at < size:
        count = int(np.frombuffer(os.pread(file, 8, at), np.int64)[0])
        at += 8
        raw = os.pread(file, 8 * _COLUMNS * count, at)
        table = np.frombuffer(raw, np.int64).reshape(count, _COLUMNS)
        at += len(raw)
        ends = at + np.cumsum(table[:, 0])
        tables.append(table)
        starts.append(ends - table[:, 0])
        at = int(ends[-1])
    return np.concatenate(tables), np.concatenate(starts)
