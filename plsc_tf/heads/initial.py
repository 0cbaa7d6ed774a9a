"""Generates the initial class weights."""

from typing import TYPE_CHECKING

import numpy as np

from plsc_tf import initializers

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head

# Each block of this many rows has its own random seed, so a class starts with the same
# weights on any number of replicas.
BLOCK_ROWS = 4096
# A truncated normal distribution ends at this many standard deviations, as in Keras.
CUT = 2.0


def class_rows(head: "Head", low: int, high: int) -> np.ndarray:
    """Generates rows `[low, high)` of a head's initial weights.

    Returns:
        `[high - low, emb]`; with several centers, `[high - low, sub_centers, emb]`.
    """
    classes, centers, size = head.num_classes, head.sub_centers, head.embedding_size
    drawn = initializers.Distribution("normal", 0.0, np.sqrt(2.0 / (size + classes)))
    if head.initializer:
        drawn = initializers.distribution(head.initializer, size, classes)
    columns = centers * size
    rows = np.full((high - low, columns), drawn.center, np.float32)
    blocks = range(low // BLOCK_ROWS, -(-high // BLOCK_ROWS)) if drawn.spread else ()
    for block in blocks:
        first = block * BLOCK_ROWS
        generator = np.random.default_rng([head.seed, block])
        start, stop = max(low, first), min(high, first + BLOCK_ROWS)
        # The first rows do not depend on the others, unless numbers are drawn again.
        count = BLOCK_ROWS if drawn.kind == "truncated_normal" else stop - first
        values = _standard(generator, (count, columns), drawn.kind)
        drawn_here = drawn.spread * values[start - first : stop - first]
        rows[start - low : stop - low] += drawn_here
    return rows.reshape(-1, centers, size) if centers > 1 else rows


def _standard(generator, shape, kind):
    """Draws float32 numbers with center 0 and spread 1."""
    if kind == "uniform":
        return 2 * generator.random(shape, np.float32) - 1
    values = generator.standard_normal(shape, np.float32)
    if kind == "truncated_normal":
        outside = np.flatnonzero(np.abs(values) > CUT)
        while outside.size:
            again = generator.standard_normal(outside.size, np.float32)
            values.flat[outside] = again
            outside = outside[np.abs(again) > CUT]
    return values
