"""Exact search: cosines of queries with all rows, block by block."""

import numpy as np

# Numbers of a block in float32: 16 MB, which suits caches and threads.
_BLOCK_NUMBERS = 1 << 22


def top(
    queries: np.ndarray, rows: np.ndarray, counted: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows with the largest products.

    Args:
        queries: float32 [q, dim].
        rows: float32 or float16 [n, dim], also mapped from a file.
        counted: bool [n], rows that count.
        count: how many rows to return, at most.

    Returns:
        (scores float32 [q, k], indices int64 [q, k]), largest first, equal ones by
        index; k is the smaller of `count` and the number of rows that count.
    """
    num_rows, dim = rows.shape
    count = min(count, int(np.count_nonzero(counted)))
    scores = np.zeros((len(queries), 0), np.float32)
    indices = np.zeros((len(queries), 0), np.int64)
    if not count:
        return scores, indices
    step = max(1, _BLOCK_NUMBERS // dim)
    for start in range(0, num_rows, step):
        places = np.flatnonzero(counted[start : start + step])
        if not len(places):
            continue
        block = rows[start : start + step]
        if len(places) < len(block):
            block = block[places]
        products = queries @ block.astype(np.float32, copy=False).T
        best = _largest(products, count)
        scores = np.concatenate([scores, np.take_along_axis(products, best, 1)], 1)
        indices = np.concatenate([indices, places[best] + start], 1)
        if scores.shape[1] > count:
            best = _largest(scores, count)
            scores = np.take_along_axis(scores, best, 1)
            indices = np.take_along_axis(indices, best, 1)
    order = np.lexsort((indices, -scores), axis=1)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(indices, order, 1)


def _largest(scores, count):
    """Columns of the `count` largest of each row, in any order."""
    if scores.shape[1] <= count:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.argpartition(scores, -count, axis=1)[:, -count:]
