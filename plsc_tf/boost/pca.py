"""Principal components of very long rows, a block of columns at a time.

The method of snapshots (Sirovich 1987): for T rows of length n the eigenvectors U of
the T × T Gram matrix X̄X̄ᵀ of the centered rows are the left singular vectors of X̄, and
P = S⁻¹UᵀX̄ its first right ones. Both passes need one block [T, m] at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

# Numbers of a block of all rows, in float64.
BLOCK = 6_000_000
TOLERANCE = 1e-5
# Of a singular value, relative to the largest, that float32 weights still determine.
SMALLEST = 1e-6


def nothing() -> None:
    """The `heartbeat` of work that nobody watches."""


def decompose(
    rows: Sequence[Any],
    size: int,
    components: int,
    name: Callable = str,
    heartbeat: Callable = nothing,
) -> tuple[np.ndarray, np.ndarray]:
    """The principal components of the rows.

    Args:
        rows: objects with `read(low, high)`, numbers of a row.
        size: n, the length of a row.
        components: k, the number of components.
        name: function that names a column, for errors.
        heartbeat: function that is called after each block.

    Returns:
        (`[k, T]` float64 M, so that P = M X̄; `[T]` explained variances, descending, as
        shares of their sum).

    Raises:
        ValueError: a number is not finite, or the rows span fewer dimensions.
    """
    gram = np.zeros((len(rows), len(rows)))
    for _, block in _centered(rows, size, name):
        gram += block @ block.T
        heartbeat()
    values, vectors = np.linalg.eigh(gram)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    total = values.sum()
    deviations = np.sqrt(values)
    rank = int(np.sum(deviations > SMALLEST * deviations[0])) if total > 0 else 0
    if rank < components:
        raise ValueError(
            f"The {len(rows)} snapshots differ in {rank} dimensions only. Received: "
            f"n_component={components}. Lower it, or keep snapshots of more steps."
        )
    largest = np.argmax(np.abs(vectors), axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(len(rows))])
    return (vectors[:, :components] / deviations[:components]).T, values / total


def project(
    rows: Sequence[Any],
    size: int,
    mixing: np.ndarray,
    write: Callable,
    heartbeat: Callable = nothing,
) -> np.ndarray:
    """Forms the projection and hands it on, block by block.

    Args:
        rows, size, heartbeat: as of `decompose`.
        mixing: M of `decompose`.
        write: function of (low, `[k, m]` float32), called in order.

    Returns:
        P Pᵀ, `[k, k]` float64.
    """
    product = np.zeros((len(mixing), len(mixing)))
    for low, block in _centered(rows, size):
        part = (mixing @ block).astype(np.float32)
        write(low, part)
        product += square(part)
        heartbeat()
    return product


def orthonormal(mixing: np.ndarray, product: np.ndarray) -> np.ndarray:
    """M of a projection with exactly orthonormal rows, from M and its P Pᵀ."""
    # With P Pᵀ = L Lᵀ the rows of L⁻¹P are orthonormal, and span the same.
    return np.linalg.solve(np.linalg.cholesky(product), mixing)


def deviation(product: np.ndarray) -> float:
    """The largest deviation of P Pᵀ from the identity."""
    return float(np.max(np.abs(product - np.eye(len(product)))))


def square(part: np.ndarray) -> np.ndarray:
    """Part · partᵀ in float64."""
    wide = part.astype(np.float64)
    return wide @ wide.T


def _centered(rows, size, name=str) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first column, centered numbers of all rows) block by block."""
    step = max(1, BLOCK // len(rows))
    for low in range(0, size, step):
        block = np.empty((len(rows), min(step, size - low)))
        for i, row in enumerate(rows):
            block[i] = row.read(low, low + block.shape[1])
            if not np.isfinite(block[i]).all():
                place = low + int(np.argmin(np.isfinite(block[i])))
                raise ValueError(
                    f"Snapshot {getattr(row, 'path', i)} holds numbers that are not "
                    f"finite, the first in {name(place)}. Remove it from "
                    "weight_load_dir."
                )
        block -= block.mean(axis=0)
        yield low, block
