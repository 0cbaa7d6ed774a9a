"""Initial class weights."""

from __future__ import annotations

import numpy as np

from plsc_tf import initializers

# They are drawn in blocks of rows, each from its own seed, so that a class starts with
# the same weights on any number of replicas.
BLOCK_ROWS = 4096
# Standard deviations at which a truncated normal distribution ends, as in Keras.
CUT = 2.0


def class_rows(
    low: int,
    high: int,
    shape: tuple[int, int, int],
    *,
    initializer: dict | None,
    deviation: float | None,
    seed: int,
) -> np.ndarray:
    """Rows `[low, high)` of the initial weights of a head.

    Args:
        low: first row.
        high: last row + 1.
        shape: `(classes, sub_centers, emb)` of the whole.
        initializer: of `initializers.described`, or None.
        deviation: standard deviation if there is none; None for PLSC's.
        seed: of the random numbers.

    Returns:
        `[high - low, emb]`, or with several centers `[high - low, sub_centers, emb]`.
    """
    classes, centers, size = shape
    if initializer:
        drawn = initializers.distribution(initializer, size, classes)
    else:
        if deviation is None:
            deviation = np.sqrt(2.0 / (size + classes))
        drawn = initializers.Distribution("normal", 0.0, deviation)
    columns = centers * size
    rows = np.full((high - low, columns), drawn.center, np.float32)
    blocks = range(low // BLOCK_ROWS, -(-high // BLOCK_ROWS)) if drawn.spread else ()
    for block in blocks:
        first = block * BLOCK_ROWS
        generator = np.random.default_rng([seed, block])
        values = _standard(generator, (BLOCK_ROWS, columns), drawn.kind)
        start, stop = max(low, first), min(high, first + BLOCK_ROWS)
        rows[start - low : stop - low] += (
            drawn.spread * values[start - first : stop - first]
        )
    return rows.reshape(-1, centers, size) if centers > 1 else rows


def _standard(generator, shape, kind):
    """Float32 numbers of center 0 and spread 1."""
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
