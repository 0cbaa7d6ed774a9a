"""Rows of a head at one moment, and rows that every replica holds."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# TensorFlow 2.17 mixes up the places of parts that threads overwrite at the same time
# on a device that is not the first: rows would land elsewhere, mostly silently. And a
# part of a replicated value is overwritten by reading and writing the whole.
OVERWRITING = threading.Lock()

# Rows are handed out in pieces of about this size.
PIECE_BYTES = 16_000_000


class HeldRows:
    """Values of the tiles of `ShardedRows`, each freed when `release` names its rows.

    On CPUs a value is a reference: TensorFlow updates a variable in new memory while
    its old value is held. Values on other devices are copied to the host at once.

    Args:
        shape: `(num_rows, ...)` of the whole.
        dtype: name of the type that `pieces` yields.
        values: for every shard, by its number, the list of its tiles' values.
        places: function of (low, high) that yields (shard, tile, first row within
            the tile, last + 1, first global row).
        here: the global rows of this process, (first, last + 1).
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        values: Mapping[int, Sequence[tf.Tensor]],
        places: Callable,
        here: tuple[int, int],
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._values: dict[int, list[Any]] = {
            shard: [_on_host(value) for value in tiles]
            for shard, tiles in values.items()
        }
        self._left = {
            shard: [value.shape[0] for value in tiles]
            for shard, tiles in values.items()
        }
        self._places = places
        self._here = here
        self._lock = threading.Lock()

    def here(self) -> tuple[int, int]:
        """Returns the global rows of this process, (first, last + 1)."""
        return self._here

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the global rows `[low, high)` in order, as arrays of bounded size."""
        for shard, tile, begin, end, _ in self._places(low, high):
            value = self._values[shard][tile]
            step = piece_rows(value.shape, value.dtype)
            for first in range(begin, end, step):
                yield as_numpy(value[first : min(first + step, end)])

    def release(self, low: int, high: int) -> None:
        """Frees rows that are no longer needed; each may be named once."""
        with self._lock:
            for shard, tile, begin, end, _ in self._places(low, high):
                self._left[shard][tile] -= end - begin
                if not self._left[shard][tile]:
                    self._values[shard][tile] = None


def as_numpy(value: Any) -> np.ndarray:
    """Returns a tensor as numpy, if possible without a copy.

    numpy's files do not support bfloat16, which becomes float32.
    """
    if isinstance(value, np.ndarray):
        return value
    if value.dtype == tf.bfloat16:
        return tf.cast(value, tf.float32).numpy()
    return np.asarray(memoryview(value)) if "CPU" in value.device else value.numpy()


def piece_rows(shape: Sequence[int], dtype: Any) -> int:
    """Returns how many rows of `[rows, ...]` make a piece."""
    row_bytes = tf.as_dtype(dtype).size * math.prod(shape[1:])
    return max(1, PIECE_BYTES // row_bytes)


def _on_host(value):
    if "CPU" in value.device:
        return value
    value = tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value
    return value.numpy()


class ReplicatedRows:
    """`[num_rows, ...]`, whole on every replica; used like `ShardedRows`."""

    sparse = False

    def __init__(self, variable: keras.Variable) -> None:
        self.variable = variable
        self.shape = tuple(variable.shape)
        self.dtype = variable.dtype
        self.tile_rows = self.shape[0]

    def local(self) -> list[tf.Tensor]:
        """Returns the one tile of the calling replica."""
        return [tf.convert_to_tensor(self.variable)]

    def here(self) -> tuple[int, int]:
        """Returns the rows of this process: all of them."""
        return 0, self.shape[0]

    def read(self, low: int, high: int) -> np.ndarray:
        """Returns the rows `[low, high)` as numpy."""
        return self.variable.value[low:high].numpy()

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the rows `[low, high)` as numpy arrays of bounded size, in order."""
        return self.held().pieces(low, high)

    def release(self, low: int, high: int) -> None:
        """Does nothing; see `HeldRows`."""

    def held(self) -> HeldRows:
        """Returns these rows as they are now, whatever happens to the variable."""
        value = tf.convert_to_tensor(self.variable.value)

        def places(low, high):
            yield 0, 0, low, high, low

        return HeldRows(self.shape, self.dtype, {0: [value]}, places, self.here())

    def spans(self, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
        """Cuts the rows `[low, high)` into spans of at most `most` rows."""
        for begin in range(low, high, most):
            yield begin, min(begin + most, high)

    def write(self, low: int, rows: np.ndarray) -> None:
        """Overwrites the rows that start at `low`, `[n, ...]`."""
        value = self.variable.value
        with OVERWRITING:
            head, tail = value[:low], value[low + len(rows) :]
            value.assign(tf.concat([head, tf.cast(rows, value.dtype), tail], axis=0))
