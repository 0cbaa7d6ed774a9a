"""Initial class weights."""

import numpy as np

# They are drawn in blocks of rows, each from its own seed, so that a class starts with
# the same weights on any number of replicas.
BLOCK_ROWS = 4096


def normal_rows(low, high, shape, deviation, *, seed):
    """Rows `[low, high)` of weights drawn from N(0, deviation²).

    Args:
        low: first row.
        high: last row + 1.
        shape: `[rows, columns]` of the whole.
        deviation: standard deviation.
        seed: of the random numbers.

    Returns:
        `[high − low, columns]` float32.
    """
    rows = np.empty((high - low, shape[1]), np.float32)
    for block in range(low // BLOCK_ROWS, -(-high // BLOCK_ROWS)):
        first = block * BLOCK_ROWS
        generator = np.random.default_rng([seed, block])
        drawn = generator.standard_normal((BLOCK_ROWS, shape[1]), np.float32)
        start, stop = max(low, first), min(high, first + BLOCK_ROWS)
        rows[start - low : stop - low] = deviation * drawn[start - first : stop - first]
    return rows
