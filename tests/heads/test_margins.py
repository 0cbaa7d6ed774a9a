"""What margins do to cosines, against the oracle and by hand."""

import math

import numpy as np
import oracle
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.heads.adaptive_margins import (
    ADAFACE,
    CURRICULARFACE,
    MAGFACE,
    AdaFace,
    CurricularFace,
    MagFace,
)
from plsc_tf.heads.margins import SPHEREFACE, InterclassFilter, Margins
from tests.conformance import head_case

# Other settings than the published ones.
OTHER_SETTINGS = {
    "adaface": (AdaFace, {"m": 0.5, "h": 0.9}),
    "curricularface": (CurricularFace, {"m": 0.7}),
    "magface": (MagFace, {"l_a": 5, "u_a": 60, "l_m": 0.2, "u_m": 0.7, "lambda_g": 20}),
}
# {case: (loss, the oracle's name for it, the oracle's options)}
LOSSES = {"softmax cosines": (Margins(), "combined", {})}
for name, (kind, given) in OTHER_SETTINGS.items():
    LOSSES[f"{name}, other settings"] = kind(**given), name, given
for name, (options, given) in head_case.LOSSES.items():
    if name != "softmax" and not name.startswith(("filtered", "smoothed")):
        others = {key: value for key, value in given.items() if key != "loss"}
        LOSSES[name] = options["loss"], given["loss"], others
# Each cosine with each norm: margins past 0 and π, norms inside and outside of
# MagFace's and AdaFace's ranges.
COSINES, NORMS = (
    grid.ravel()
    for grid in np.meshgrid(
        [-0.999999, -0.95, -0.8, -0.3, 0.05, 0.4, 0.8, 0.95, 0.999, 0.999999],
        [1e-4, 3.0, 14.0, 20.0, 55.0, 99.0, 105.0, 300.0],
    )
)
OTHERS = np.linspace(-0.97, 0.97, 9)[:, None] + 0.02 * np.sin(np.arange(len(COSINES)))
STATE = {"norm_mean": 24.0, "norm_deviation": 9.0, "t": 0.3}


def state_of(loss, dtype="float64"):
    return {name: tf.constant(STATE[name], dtype) for name in loss.initial_state()}


@pytest.mark.parametrize("name", LOSSES)
def test_target_and_its_slopes_equal_the_oracle(name):
    loss, oracles_name, given = LOSSES[name]
    cosine, norms = tf.constant(COSINES), tf.constant(NORMS)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([cosine, norms])
        value, penalty = oracle.target(oracles_name, cosine, norms, STATE, **given)
    found = loss.target(cosine, norms, state_of(loss))
    np.testing.assert_allclose(found.value, value, atol=1e-12)
    np.testing.assert_allclose(found.slope, tape.gradient(value, cosine), rtol=1e-8)
    by_norm = tape.gradient(value, norms)
    assert (found.norm_slope is None) == (by_norm is None)
    if by_norm is not None:
        np.testing.assert_allclose(found.norm_slope, by_norm, atol=1e-14)
        np.testing.assert_allclose(found.penalty, penalty, rtol=1e-12)
        slope = tape.gradient(penalty, norms)
        np.testing.assert_allclose(found.penalty_slope, slope, atol=1e-14)
        assert np.abs(by_norm).max() > 1e-3


@pytest.mark.parametrize("threshold", [0.0, 0.35])
@pytest.mark.parametrize("name", LOSSES)
def test_others_and_their_slope_equal_the_oracle(name, threshold):
    loss, oracles_name, given = LOSSES[name]
    given = {k: v for k, v in given.items() if k != "straight_through"}
    if threshold:
        loss = InterclassFilter(loss, threshold)
    cosine, norms = tf.constant(COSINES), tf.constant(NORMS)
    rest = tf.constant(OTHERS)
    with tf.GradientTape() as tape:
        tape.watch(rest)
        cosines = tf.transpose(rest), cosine
        expected = oracle.others(oracles_name, *cosines, STATE, threshold, **given)
    target = loss.target(cosine, norms, state_of(loss))
    value, slope = loss.others(rest, target, state_of(loss))
    np.testing.assert_allclose(value, tf.transpose(expected), atol=1e-14)
    if slope is None:
        assert value is rest
        slope = tf.ones_like(rest)
    np.testing.assert_allclose(slope, tape.gradient(expected, rest), atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_ends_of_the_cosine_stay_finite(name, dtype):
    loss = LOSSES[name][0]
    cosine = tf.constant([1.0, -1.0, 1.0000002, -1.0000002], dtype)
    norms = tf.constant([0.0, 20.0, 1e30, 20.0], dtype)
    for value in loss.target(cosine, norms, state_of(loss)):
        assert value is None or np.isfinite(value).all()


def test_published_constants():
    # AdaFace: README of mk-minchul/AdaFace (m, h, t_alpha) and its head.py (the
    # initial statistics).
    assert AdaFace(m=0.4, h=0.333, t_alpha=0.01) == ADAFACE
    assert ADAFACE.initial_state() == {"norm_mean": 20.0, "norm_deviation": 100.0}
    # CurricularFace: HuangYG123/CurricularFace, head/metrics.py.
    assert CurricularFace(m=0.5, momentum=0.01) == CURRICULARFACE
    assert CURRICULARFACE.initial_state() == {"t": 0.0}
    # MagFace: IrvingMeng/MagFace, run/run.sh and run_dist.sh.
    assert MagFace(l_a=10, u_a=110, l_m=0.45, u_m=0.8, lambda_g=35) == MAGFACE
    # PLSC 0.1.1 config.py: margin 0.5; CosFace arXiv:1801.09414: 0.35; SphereFace as
    # one factor, ArcFace arXiv:1801.07698, table 2 (1.35, 0, 0).
    assert (plsc_tf.ARCFACE.m2, plsc_tf.COSFACE.m3, SPHEREFACE.m1) == (0.5, 0.35, 1.35)


# AdaFace needs two examples for a deviation; a batch of padding leaves the state.
@pytest.mark.parametrize("real", [28, 1, 0])
def test_states_equal_the_oracle(real):
    rng = np.random.default_rng(0)
    cosine, norms = rng.uniform(-1, 1, 40), rng.uniform(0, 130, 40)
    weights = np.where(np.arange(40) < real, 1.0, 0.0)
    # What padding holds does not matter, not even when it is not a number.
    norms = np.where(weights == 0, np.nan, norms)
    for loss, name in ((ADAFACE, "adaface"), (CURRICULARFACE, "curricularface")):
        batch = [tf.constant(values) for values in (cosine, norms, weights)]
        found = loss.next_state(*batch, state_of(loss))
        expected = oracle.next_state(name, cosine, norms, weights, STATE)
        for key in loss.initial_state():
            assert float(found[key]) == pytest.approx(expected[key], rel=1e-12)


def test_the_filter_passes_everything_else_on():
    loss = InterclassFilter(CURRICULARFACE, 0.4)
    assert loss.normalized
    assert loss.initial_state() == {"t": 0.0}
    off = InterclassFilter(plsc_tf.SOFTMAX, 0.0)
    assert not off.normalized
    cosine = tf.constant([[0.9]])
    value, slope = off.others(cosine, None, {})
    assert value is cosine and slope is None


@pytest.mark.parametrize(
    ("kind", "arguments", "complaint"),
    [
        (Margins, {"gradient": "exakt"}, "exact"),
        (Margins, {"m1": 0.0}, r"m1 must be in \(0, 4\]. Received: m1=0.0"),
        (Margins, {"m2": 28.6}, "m2 must be in .*in radians"),
        (Margins, {"m2": math.nan}, "m2 must be in .*in radians"),
        (Margins, {"m3": 2.0}, "m3 must be"),
        (Margins, {"m2": 0.5, "normalized": False}, "Margins need cosines"),
        (AdaFace, {"m": 1.0}, "AdaFace's m must be"),
        (AdaFace, {"h": 1.5}, "AdaFace's h must be"),
        (AdaFace, {"t_alpha": 0.0}, "t_alpha must be"),
        (CurricularFace, {"m": 3.2}, "CurricularFace's m must be in"),
        (CurricularFace, {"momentum": 2}, "momentum must be"),
        (MagFace, {"l_a": 110}, "0 < l_a < u_a"),
        (MagFace, {"u_m": 0.3}, "l_m <= u_m"),
        (MagFace, {"lambda_g": -1}, "lambda_g must not"),
        (InterclassFilter, {"loss": plsc_tf.ARCFACE, "threshold": 1}, "threshold=1"),
        (InterclassFilter, {"loss": 0.5, "threshold": 0.4}, "must wrap a margin loss"),
    ],
)
def test_bad_settings_are_explained(kind, arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        kind(**arguments)
