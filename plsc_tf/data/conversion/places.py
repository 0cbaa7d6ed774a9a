"""The shuffle without buckets: records are found, and read again in their order.

It takes the place of writing buckets where the input's files hold the records as the
output shall have them, and the system's cache holds the files. The order is the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from plsc_tf.data.conversion import vectors
from plsc_tf.data.conversion.buckets import Draws, order_within
from plsc_tf.storage import local

# File, offset, bytes of the record, bytes of its payload, label.
_COLUMNS = 5
# What a record takes at most while the order is made.
_RECORD_BYTES = 2 * 8 * _COLUMNS + 16


class Places:
    """Where records stand in files, in a random order.

    Args:
        paths: the files, local.
        memory_bytes: for the table.
    """

    def __init__(self, paths: Sequence[str], memory_bytes: int):
        self._paths = paths
        self._parts = []
        self._room = memory_bytes // _RECORD_BYTES
        self._table = None

    def __len__(self) -> int:
        return len(self._table)

    def add(self, file: int, spans: np.ndarray) -> bool:
        """Adds the next records; whether there is memory for them.

        Args:
            file: its number.
            spans: int64 [n, 4]: offset, bytes of the record, of its payload, label.
        """
        self._room -= len(spans)
        part = np.empty((len(spans), _COLUMNS), np.int64)
        part[:, 0], part[:, 1:] = file, spans
        self._parts.append(part)
        return self._room >= 0

    def shuffle(self, num_buckets: int, seed: int) -> None:
        """Puts all records into the order that so many buckets give them."""
        table = np.concatenate(self._parts)
        self._parts.clear()
        drawn = Draws(num_buckets, seed).draw(0, len(table))
        order = np.argsort(drawn, kind="stable")
        ends = np.cumsum(np.bincount(drawn, minlength=num_buckets)).tolist()
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            part = order[start:end]
            order[start:end] = part[order_within(number, len(part), seed)]
        self._table = table[order]

    def read_all(self, first: int) -> Iterator[tuple[list[bytes], np.ndarray]]:
        """Yields records from a number on, and their rows as `ShardWriter` takes them.

        Args:
            first: number of the first record, in the new order.
        """
        files = [os.open(path, os.O_RDONLY) for path in self._paths]
        try:
            table = self._table[first:]
            handles = np.array(files)[table[:, 0]]
            for start, end in vectors.byte_spans(table[:, 2], local.WRITE_BYTES):
                rows = table[start:end]
                places = handles[start:end], rows[:, 2], rows[:, 1]
                records = list(map(os.pread, *(column.tolist() for column in places)))
                yield records, rows[:, 2:]
        finally:
            for file in files:
                os.close(file)
