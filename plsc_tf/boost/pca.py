"""Computes principal components of very long rows, one block of columns at a time.

This is the method of snapshots (Sirovich 1987). For T rows of length n, the
eigenvectors U of the T × T Gram matrix X̄X̄ᵀ of the centered rows are the left singular
vectors of X̄, and the rows of P = S⁻¹UᵀX̄ are its first right singular vectors. Both
passes read one block [T, m] at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from plsc_tf.requirements import require

# Size of a block of all rows, in float64 numbers.
BLOCK = 6_000_000
TOLERANCE = 1e-5
# Smallest singular value, relative to the largest, that float32 weights can determine.
SMALLEST = 1e-6


def decompose(
    rows: Sequence[Any], size: int, components: int, name: Callable = str
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the principal components of the rows.

    Args:
        rows: objects whose `read(low, high)` returns a slice of a row.
        size: n, the length of a row.
        components: k, the number of components.
        name: function that returns the name of a column for error messages.

    Returns:
        (`[k, T]` float64 M with P = M X̄; `[T]` explained variances, descending, as
        shares of their sum).

    Raises:
        ValueError: a row contains NaN or infinity, or the rows span fewer than k
            dimensions.
    """
    gram = np.zeros((len(rows), len(rows)))
    for block in _centered(rows, size, name):
        gram += block @ block.T
    values, vectors = np.linalg.eigh(gram)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    total, deviations = values.sum(), np.sqrt(values)
    rank = int(np.sum(deviations > SMALLEST * deviations[0])) if total > 0 else 0
    rule = f"The {len(rows)} snapshots span only {rank} dimensions"
    advice = "Lower it, or save snapshots of more steps"
    require(rank >= components, rule, advice, n_component=components)
    largest = np.argmax(np.abs(vectors), axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(len(rows))])
    return (vectors[:, :components] / deviations[:components]).T, values / total


def project(rows: Sequence[Any], size: int, mixing: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the columns of the projection P = M X̄, in order, as `[k, m]` float32.

    Args:
        rows, size: see `decompose`.
        mixing: M, as returned by `decompose`.
    """
    for block in _centered(rows, size):
        yield (mixing @ block).astype(np.float32)


def orthonormal(mixing: np.ndarray, product: np.ndarray) -> np.ndarray:
    """Corrects M for rounding errors, given P Pᵀ, so that P has orthonormal rows."""
    # If P Pᵀ = L Lᵀ, the rows of L⁻¹P are orthonormal and span the same space.
    return np.linalg.solve(np.linalg.cholesky(product), mixing)


def deviation(product: np.ndarray) -> float:
    """Returns the largest absolute deviation of P Pᵀ from the identity."""
    return float(np.max(np.abs(product - np.eye(len(product)))))


def square(part: np.ndarray) -> np.ndarray:
    """Computes part · partᵀ in float64."""
    wide = part.astype(np.float64)
    return wide @ wide.T


def _centered(rows, size, name=str) -> Iterator[np.ndarray]:
    """Yields the centered rows, some columns at a time."""
    step = max(1, BLOCK // len(rows))
    for low in range(0, size, step):
        block = np.empty((len(rows), min(step, size - low)))
        for i, row in enumerate(rows):
            block[i] = row.read(low, low + block.shape[1])
            if not np.isfinite(block[i]).all():
                place = low + int(np.argmin(np.isfinite(block[i])))
                raise ValueError(
                    f"Snapshot {getattr(row, 'path', i)} contains NaN or infinity, "
                    f"first in {name(place)}. Remove it from weight_load_dir."
                )
        block -= block.mean(axis=0)
        yield block
