"""What margins do to cosines."""

import math

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.heads.margins import SPHEREFACE, Margins


@pytest.mark.parametrize(
    ("margins", "formula"),
    [
        (plsc_tf.ARCFACE, lambda t: math.cos(t + 0.5)),
        (plsc_tf.COSFACE, lambda t: math.cos(t) - 0.35),
        (SPHEREFACE, lambda t: math.cos(1.35 * t)),
        (Margins(0.9, 0.4, 0.15), lambda t: math.cos(0.9 * t + 0.4) - 0.15),
    ],
)
def test_values_and_slopes(margins, formula):
    angles = np.array([0.3, 1.0, math.pi / 2, 2.5, 3.0])
    value, slope = margins.apply(tf.constant(np.cos(angles)))
    np.testing.assert_allclose(value, [formula(t) for t in angles], atol=1e-12)
    # d/dcos = (d/dθ) / (−sin θ), by central differences.
    step = 1e-6
    expected = [
        (formula(t + step) - formula(t - step)) / (2 * step) / -math.sin(t)
        for t in angles
    ]
    np.testing.assert_allclose(slope, expected, rtol=1e-7)


def test_straight_through_keeps_the_value_and_passes_the_gradient():
    margins = Margins(m2=0.5, gradient="straight_through")
    value, slope = margins.apply(tf.constant([math.cos(1.0)], tf.float64))
    np.testing.assert_allclose(value, [math.cos(1.5)])
    np.testing.assert_array_equal(slope, [1.0])


@pytest.mark.parametrize("cosine", [1.0, -1.0, 1.0000001, -1.0000001])
def test_the_ends_of_the_cosine_stay_finite(cosine):
    value, slope = plsc_tf.ARCFACE.apply(tf.constant([cosine], tf.float32))
    assert np.isfinite(value).all() and np.isfinite(slope).all()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"gradient": "exakt"}, "exact"),
        ({"m1": 0.0}, "m1 must be positive"),
        ({"m2": 0.5, "normalized": False}, "Margins need cosines"),
    ],
)
def test_bad_margins_are_explained(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        Margins(**arguments)
