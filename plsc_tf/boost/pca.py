"""Principal components of very long rows, a block of columns at a time.

The method of snapshots (Sirovich 1987): for T rows of length n the eigenvectors U of
the T × T Gram matrix X̄X̄ᵀ of the centered rows are the left singular vectors of X̄, and
P = S⁻¹UᵀX̄ its first right ones. Both passes need one block [T, m] at a time.
"""

import dataclasses

import numpy as np

# Numbers of a block of all rows, in float64.
BLOCK = 6_000_000
TOLERANCE = 1e-5
# Of a singular value, relative to the largest, that float32 weights still determine.
SMALLEST = 1e-6


@dataclasses.dataclass(frozen=True)
class Components:
    """The principal components of the Gram matrix.

    Attributes:
        mixing: `[k, T]` float64, so that P = mixing · X̄.
        variances: `[T]` explained variances, descending, as shares of their sum.
    """

    mixing: np.ndarray
    variances: np.ndarray


def blocks(size, rows):
    """Yields (first, last + 1) of the columns of each block."""
    step = max(1, BLOCK // rows)
    for low in range(0, size, step):
        yield low, min(low + step, size)


def decompose(rows, size, components, name=str, heartbeat=None):
    """The principal components of the rows.

    Args:
        rows: list of objects with `read(low, high)`, numbers of a row.
        size: n, the length of a row.
        components: k, how many are wanted.
        name: function that names a column, for errors.
        heartbeat: function that is called after each block.

    Returns:
        `Components`.

    Raises:
        ValueError: a number is not finite, or the rows span fewer dimensions.
    """
    gram = np.zeros((len(rows), len(rows)))
    for low, high in blocks(size, len(rows)):
        block = _centered(rows, low, high, name)
        gram += block @ block.T
        if heartbeat is not None:
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
    mixing = (vectors[:, :components] / deviations[:components]).T
    return Components(mixing, values / total)


def project(rows, size, principal, write, heartbeat=None):
    """Forms the projection and hands it on, block by block.

    Args:
        rows: as of `decompose`.
        size: n.
        principal: the `Components`.
        write: function of (low, `[k, m]` float32), called in order.
        heartbeat: function that is called after each block.

    Returns:
        P Pᵀ, `[k, k]` float64.
    """
    components = len(principal.mixing)
    product = np.zeros((components, components))
    for low, high in blocks(size, len(rows)):
        part = (principal.mixing @ _centered(rows, low, high)).astype(np.float32)
        write(low, part)
        product += _square(part)
        if heartbeat is not None:
            heartbeat()
    return product


def orthonormal(principal, product):
    """The `Components` whose projection has exactly orthonormal rows.

    Args:
        principal: the `Components`.
        product: P Pᵀ of their projection.
    """
    # With P Pᵀ = L Lᵀ the rows of L⁻¹P are orthonormal, and span the same.
    factor = np.linalg.cholesky(product)
    return dataclasses.replace(
        principal, mixing=np.linalg.solve(factor, principal.mixing)
    )


def deviation(product):
    """The largest deviation of P Pᵀ from the identity."""
    return float(np.max(np.abs(product - np.eye(len(product)))))


def _square(part):
    wide = part.astype(np.float64)
    return wide @ wide.T


def _centered(rows, low, high, name=str):
    block = np.empty((len(rows), high - low))
    for i, row in enumerate(rows):
        block[i] = row.read(low, high)
        if not np.isfinite(block[i]).all():
            place = low + int(np.argmin(np.isfinite(block[i])))
            raise ValueError(
                f"Snapshot {getattr(row, 'path', i)} holds numbers that are not "
                f"finite, the first in {name(place)}. Remove it from weight_load_dir."
            )
    block -= block.mean(axis=0)
    return block
