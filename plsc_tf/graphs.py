"""Wraps functions of tensors as TensorFlow graph functions, without AutoGraph."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def with_xla(function: Callable, wanted: bool = True) -> Any:
    """Returns a function that XLA compiles, or `function` itself if not `wanted`."""
    if not wanted:
        return function
    return tf.function(function, autograph=False, jit_compile=True)


class EachTile:
    """Calls a function for one tile after another: a loop that is unrolled in groups.

    Each call in a graph takes time to trace and optimize, and memory. So √n tiles are
    one graph function, called √n times; both are traced once for each tile shape.

    Args:
        function: function of (tile, start, shared, carry) that returns (result, carry).
    """

    def __init__(self, function: Callable) -> None:
        # TensorFlow doesn't inline them, so that they are not optimized for each tile.
        options = {"experimental_attributes": {"_noinline": True}}
        self._one = tf.function(function, autograph=False, **options)
        self._group = tf.function(self._run, autograph=False, **options)

    def __call__(
        self, tiles: Sequence[Any], starts: Sequence[int], shared: Any, carry: Any
    ) -> tuple[list, Any]:
        """Calls the function; each call waits for the one before.

        Args:
            tiles: for each tile, nested tensors, variables and constants.
            starts: first rows of the tiles, which the function gets as int64 scalars.
            shared: nested tensors that every call gets.
            carry: nested tensors that the first call gets; others get that of the call
                before.

        Returns:
            (list of the results, carry of the last call).
        """
        starts = runtime_constant(starts)
        results, size = [], math.isqrt(len(tiles))
        run = self._group if size > 1 else self._run
        for low in range(0, len(tiles), size):
            group = slice(low, low + size)
            found, carry = run(tiles[group], starts[group], shared, carry)
            results += found
        return results, carry

    def _run(self, tiles, starts, shared, carry):
        results = []
        for index, tile in enumerate(tiles):
            result, carry = self._one(tile, starts[index], shared, carry)
            results.append(result)
        return results, carry


def runtime_constant(value: Any) -> tf.Tensor:
    """Returns int64 numbers that TensorFlow does not treat as a constant.

    It would copy and optimize a function for each constant that is passed to it.
    """
    value = tf.constant(value, tf.int64)
    return tf.raw_ops.PlaceholderWithDefault(input=value, shape=value.shape)
