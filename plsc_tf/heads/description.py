"""A line about a head, for the summary of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head


def describe(head: Head) -> str:
    """A line about the head: rows, shards, parameters and loss."""
    arrays = head.arrays()
    rows, *sizes = arrays["weight"].shape
    size = " × ".join(map(str, sizes))
    place = "whole on every replica"
    if head.sharded:
        split = arrays["weight"].split
        largest, smallest = split.size(0), split.size(split.num_shards - 1)
        span = f"{largest:,}" if largest == smallest else f"{smallest:,} to {largest:,}"
        place = f"in {split.num_shards} shard(s) of {span} rows"
    parameters = sum(math.prod(array.shape) for array in arrays.values())
    scale = f", scale={head.scale:g}" if "bias" not in arrays else ""
    return (
        f"Head: {type(head).__name__}, {rows:,} rows × {size}, {place}; "
        f"{parameters:,} parameters; loss={head.loss}{scale}"
    )
