"""Principal components by blocks, against numpy's whole decomposition."""

import numpy as np
import pytest

from plsc_tf.boost import pca
from plsc_tf.parallel.rows import TiledRows

ROWS, SIZE, WANTED = 9, 1000, 5


@pytest.fixture
def matrix():
    """`[9, 1000]` float32: a path that moves less and less, away from the origin."""
    rng = np.random.default_rng(1)
    scales = 0.3 ** np.arange(ROWS)[:, None]
    moves = (scales * rng.standard_normal((ROWS, SIZE))).cumsum(axis=0)
    return (100 * rng.standard_normal(SIZE) + moves).astype(np.float32)


def components(matrix, wanted=WANTED):
    rows = [TiledRows({0: [values]}) for values in matrix]
    found = pca.decompose(rows, matrix.shape[1], wanted)
    return found, projected(rows, found[0])


def projected(rows, mixing):
    return np.concatenate(list(pca.project(rows, SIZE, mixing)), axis=1)


def whole_svd(matrix):
    wide = matrix.astype(np.float64)
    return np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)


def test_the_span_is_that_of_a_whole_svd(matrix, monkeypatch):
    # Blocks of 77 columns, of which the last is smaller.
    monkeypatch.setattr(pca, "BLOCK", 77 * ROWS)
    found, projection = components(matrix)
    assert projection.shape == (WANTED, SIZE) and projection.dtype == np.float32
    np.testing.assert_allclose(projection @ projection.T, np.eye(WANTED), atol=1e-5)
    _, singular, right = whole_svd(matrix)
    exact, _ = np.linalg.qr(projection.astype(np.float64).T)
    # What of the one span is outside the other: the largest principal angle's sine.
    assert np.linalg.norm(exact - right[:WANTED].T @ (right[:WANTED] @ exact), 2) < 1e-5
    shares = singular**2 / np.sum(singular**2)
    np.testing.assert_allclose(found[1], shares, rtol=1e-5, atol=1e-12)


def test_signs_are_settled(matrix):
    # The largest entry of each left singular vector is positive.
    left = whole_svd(matrix)[0][:, :WANTED]
    largest = left[np.argmax(np.abs(left), axis=0), np.arange(WANTED)]
    _, projection = components(matrix)
    right = (whole_svd(matrix)[2][:WANTED].T * np.sign(largest)).T
    np.testing.assert_allclose(projection, right, atol=1e-5)


def test_rows_are_made_orthonormal_again(matrix):
    found, _ = components(matrix)
    skewed = found[0] + 0.05 * np.roll(found[0], 1, 0)
    rows = [TiledRows({0: [values]}) for values in matrix]
    product = pca.square(projected(rows, skewed))
    assert pca.deviation(product) > 0.01
    exact = projected(rows, pca.orthonormal(skewed, product))
    assert pca.deviation(pca.square(exact)) < pca.TOLERANCE


def test_equal_snapshots_span_too_little(matrix):
    matrix[4:] = matrix[4]
    with pytest.raises(ValueError, match=r"span only 4 dimensions.*n_component=5"):
        components(matrix)
