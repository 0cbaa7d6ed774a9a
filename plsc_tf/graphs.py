"""Wraps functions of tensors as TensorFlow graph functions, without AutoGraph."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def with_xla(function: Callable, wanted: bool = True) -> Any:
    """Returns a function that XLA compiles, or `function` itself if not `wanted`."""
    if not wanted:
        return function
    return tf.function(function, autograph=False, jit_compile=True)


def as_one_function(function: Callable) -> Callable:
    """Wraps a function in a graph function that TensorFlow doesn't inline.

    It is traced and optimized once for each tile shape instead of once for each tile.
    """
    attributes = {"_noinline": True}
    return tf.function(function, autograph=False, experimental_attributes=attributes)
