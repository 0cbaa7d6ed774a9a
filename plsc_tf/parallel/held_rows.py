"""Rows of a head at one moment, kept while training goes on."""

import threading

import numpy as np
import tensorflow as tf

# Rows are handed out in pieces of about this size.
PIECE_BYTES = 16_000_000


class HeldRows:
    """Values of the tiles of `ShardedRows`, let go of as they are no longer needed.

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

    def __init__(self, shape, dtype, values, places, here):
        self.shape = shape
        self.dtype = dtype
        self._values = {
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

    def here(self):
        """The global rows of this process: (first, last + 1)."""
        return self._here

    def pieces(self, low, high):
        """The global rows `[low, high)` as numpy arrays of bounded size, in order."""
        for shard, tile, begin, end, _ in self._places(low, high):
            value = self._values[shard][tile]
            step = piece_rows(value.shape, value.dtype)
            for first in range(begin, end, step):
                yield as_numpy(value[first : min(first + step, end)])

    def release(self, low, high):
        """Lets go of rows that are not needed any more; each may be named once."""
        with self._lock:
            for shard, tile, begin, end, _ in self._places(low, high):
                self._left[shard][tile] -= end - begin
                if not self._left[shard][tile]:
                    self._values[shard][tile] = None


def as_numpy(value):
    """A tensor as numpy, without a copy where that is possible.

    numpy's files do not know bfloat16, which becomes float32.
    """
    if isinstance(value, np.ndarray):
        return value
    if value.dtype == tf.bfloat16:
        return tf.cast(value, tf.float32).numpy()
    return np.asarray(memoryview(value)) if "CPU" in value.device else value.numpy()


def piece_rows(shape, dtype):
    """Rows of `[rows, ...]` that make a piece."""
    row_bytes = dtype.size if isinstance(dtype, tf.DType) else dtype.itemsize
    for size in shape[1:]:
        row_bytes *= size
    return max(1, PIECE_BYTES // row_bytes)


def _on_host(value):
    if "CPU" in value.device:
        return value
    value = tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value
    return value.numpy()
