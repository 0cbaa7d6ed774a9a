"""Snapshots of a head's rows, and rows that are replicated on every replica."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# If several threads assign to slices at the same time on a device other than the first,
# TensorFlow 2.17 confuses the positions and writes rows to the wrong place, mostly
# without an error. Also, `ReplicatedRows.write` reads and writes the whole value, so
# concurrent writes would undo each other.
OVERWRITING = threading.Lock()

# Approximate size of the arrays that `pieces` yields.
PIECE_BYTES = 16_000_000


class HeldRows:
    """A snapshot of the tiles of `ShardedRows`; `release` frees their memory.

    On CPUs, the snapshot holds references: while a variable's old value is referenced,
    TensorFlow writes updates to new memory. Values on other devices are copied to the
    host immediately.

    Args:
        shape: `(num_rows, ...)`, the shape of all rows together.
        dtype: name of the dtype that `pieces` yields.
        values: {shard: values of its tiles}.
        places: function of (low, high) that yields (shard, tile, first row within
            the tile, last + 1, first global row).
        local_range: this process's global rows, (first, last + 1).
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        values: Mapping[int, Sequence[tf.Tensor]],
        places: Callable,
        local_range: tuple[int, int],
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._values: dict[int, list[Any]] = {
            shard: [v if "CPU" in v.device else as_numpy(v) for v in tiles]
            for shard, tiles in values.items()
        }
        self._left = {
            shard: [value.shape[0] for value in tiles]
            for shard, tiles in values.items()
        }
        self._places = places
        self._local_range = local_range
        self._lock = threading.Lock()

    def local_range(self) -> tuple[int, int]:
        """Returns this process's global rows, (first, last + 1)."""
        return self._local_range

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the global rows `[low, high)` in order, as arrays of bounded size."""
        for shard, tile, begin, end, _ in self._places(low, high):
            value = self._values[shard][tile]
            step = piece_rows(value.shape, value.dtype)
            for first in range(begin, end, step):
                yield as_numpy(value[first : min(first + step, end)])

    def release(self, low: int, high: int) -> None:
        """Marks rows as no longer needed; a tile is freed once all its rows are.

        Release each row only once.
        """
        with self._lock:
            for shard, tile, begin, end, _ in self._places(low, high):
                self._left[shard][tile] -= end - begin
                if not self._left[shard][tile]:
                    self._values[shard][tile] = None


def as_numpy(value: Any) -> np.ndarray:
    """Converts a tensor to a numpy array, without a copy if possible.

    bfloat16 becomes float32, because numpy's file format does not support it.
    """
    if isinstance(value, np.ndarray):
        return value
    if value.dtype == tf.bfloat16:
        return tf.cast(value, tf.float32).numpy()
    return np.asarray(memoryview(value)) if "CPU" in value.device else value.numpy()


def piece_rows(shape: Sequence[int], dtype: Any) -> int:
    """Returns how many rows of an array `[rows, ...]` a piece contains."""
    row_bytes = tf.as_dtype(dtype).size * math.prod(shape[1:])
    return max(1, PIECE_BYTES // row_bytes)


class ReplicatedRows:
    """An array `[num_rows, ...]` replicated on every replica.

    It has the interface of `ShardedRows`.
    """

    sparse = False

    def __init__(self, variable: keras.Variable) -> None:
        self.variable = variable
        self.shape = tuple(variable.shape)
        self.dtype = variable.dtype
        self.tile_rows = self.shape[0]

    def local(self) -> list[tf.Tensor]:
        """Returns the calling replica's only tile."""
        return [tf.convert_to_tensor(self.variable)]

    def local_range(self) -> tuple[int, int]:
        """Returns this process's rows, which are all rows, as (first, last + 1)."""
        return 0, self.shape[0]

    def read(self, low: int, high: int) -> np.ndarray:
        """Returns the rows `[low, high)` as a numpy array."""
        return self.variable.value[low:high].numpy()

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the rows `[low, high)` as numpy arrays of bounded size, in order."""
        return self.held().pieces(low, high)

    def release(self, low: int, high: int) -> None:
        """Does nothing; see `HeldRows`."""

    def held(self) -> HeldRows:
        """Returns a snapshot of the rows that later updates don't change."""
        value = tf.convert_to_tensor(self.variable.value)

        def places(low, high):
            yield 0, 0, low, high, low

        return HeldRows(
            self.shape, self.dtype, {0: [value]}, places, self.local_range()
        )

    def spans(self, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
        """Cuts `[low, high)` into spans (first, last + 1) of at most `most` rows."""
        for begin in range(low, high, most):
            yield begin, min(begin + most, high)

    def write(self, low: int, rows: np.ndarray) -> None:
        """Overwrites the rows from `low` with `rows`, `[n, ...]`."""
        value = self.variable.value
        with OVERWRITING:
            head, tail = value[:low], value[low + len(rows) :]
            value.assign(tf.concat([head, tf.cast(rows, value.dtype), tail], axis=0))
