"""The quasi-Newton method, against what is known of it."""

import numpy as np

from plsc_tf.boost.reduced_step import Bfgs

DIMENSIONS = 6


def walk(method, hessian, b, steps):
    """Goes so many steps with exact searches; returns where it ends."""
    place = np.zeros(DIMENSIONS)
    for _ in range(steps):
        gradient = hessian @ place - b
        direction, inverse = method.direction(gradient)
        size = -(gradient @ direction) / (direction @ hessian @ direction)
        method.accept(gradient, size * direction, inverse)
        place = place + size * direction
    return place


def test_a_quadratic_is_minimised_in_k_plus_1_steps():
    # ½ xᵀHx − bᵀx with condition 100.
    rng = np.random.default_rng(2)
    turn, _ = np.linalg.qr(rng.standard_normal((DIMENSIONS, DIMENSIONS)))
    hessian = turn @ np.diag(np.logspace(0, 2, DIMENSIONS)) @ turn.T
    b = rng.standard_normal(DIMENSIONS)
    exact = np.linalg.solve(hessian, b)
    place = walk(Bfgs(DIMENSIONS), hessian, b, DIMENSIONS + 1)
    np.testing.assert_allclose(place, exact, rtol=1e-6, atol=1e-9)
    # The gradient alone is far from there.
    short = walk(Bfgs(DIMENSIONS), hessian, b, 1)
    assert np.linalg.norm(short - exact) > 0.1 * np.linalg.norm(exact)


def test_negative_curvature_changes_nothing():
    method = Bfgs(2)
    method.accept([1.0, 0.0], [-0.5, 0.0], np.eye(2))
    direction, inverse = method.direction([2.0, 1.0])  # yᵀs = −0.5
    np.testing.assert_array_equal(inverse, np.eye(2))
    np.testing.assert_array_equal(direction, [-2.0, -1.0])
