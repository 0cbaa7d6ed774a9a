"""Class rows that stay in the files of another library until they are written."""

import dataclasses
import threading
from collections.abc import Callable

import numpy as np

# Rows are yielded in pieces of about this size.
PIECE_BYTES = 32_000_000
# Shards that had to be loaded whole and are kept: one for each thread that writes.
LOADED = 2


@dataclasses.dataclass(frozen=True)
class Shard:
    """The classes that one device of the other library had.

    Attributes:
        rows: how many classes.
        open: function that returns them as `[rows, ...]`: an array, which may be
            mapped from the file.
    """

    rows: int
    open: Callable[[], np.ndarray]


class ShardedFiles:
    """`[num_classes, ...]` float32 out of shards, with the interface of `ShardedRows`.

    Attributes:
        shape: of the whole.
        dtype: "float32".

    Args:
        shards: list of `Shard`, in the order of the classes.
        row_shape: shape of one row.
    """

    dtype = "float32"

    def __init__(self, shards, row_shape):
        self._shards = shards
        self._firsts = np.cumsum([0, *(shard.rows for shard in shards)])
        self._opened = {}
        self._lock = threading.Lock()
        self.shape = (int(self._firsts[-1]), *row_shape)

    def here(self):
        """The rows of this process: all of them."""
        return 0, self.shape[0]

    def read(self, low, high):
        """The rows `[low, high)` as numpy."""
        parts = [np.empty((0, *self.shape[1:]), self.dtype)]
        for index, shard in enumerate(self._shards):
            first = int(self._firsts[index])
            start, stop = max(low, first), min(high, first + shard.rows)
            if start < stop:
                rows = self._open(index)[start - first : stop - first]
                parts.append(np.asarray(rows, self.dtype))
        return np.concatenate(parts)

    def pieces(self, low, high):
        """Yields the rows `[low, high)` in pieces of a few megabytes."""
        row_bytes = 4 * int(np.prod(self.shape[1:], dtype=np.int64))
        step = max(1, PIECE_BYTES // row_bytes)
        for start in range(low, high, step):
            yield self.read(start, min(start + step, high))

    def release(self, low, high):
        """Does nothing: shards are let go when the next ones are opened."""

    def _open(self, index):
        with self._lock:
            if index not in self._opened:
                while len(self._opened) >= LOADED:
                    self._opened.pop(next(iter(self._opened)))
                self._opened[index] = self._shards[index].open()
            return self._opened[index]
