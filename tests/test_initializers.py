"""Initial class weights by Keras's initializers, whatever the number of replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf import initializers
from plsc_tf.options.cli import UsageError, parse

CLASSES, SIZE = 5000, 32
# A normal distribution that is cut at two deviations has this share of them left.
CUT = 0.8796
GLOROT = np.sqrt(2 / (SIZE + CLASSES))
# Standard deviation and bound, by hand: variance scaled to 2 / fan_in and the like.
CASES = {
    "glorot_uniform": (GLOROT, np.sqrt(3) * GLOROT),
    "he_normal": (0.25, 2 * 0.25 / CUT),
    "he_uniform": (0.25, np.sqrt(6 / 32)),
    "truncated_normal(stddev=0.02)": (0.02 * CUT, 0.04),
    "random_uniform(minval=-0.1, maxval=0.1)": (0.2 / np.sqrt(12), 0.1),
    "variance_scaling(scale=2, mode=fan_out, distribution=uniform)": (
        np.sqrt(2 / CLASSES),
        np.sqrt(6 / CLASSES),
    ),
    "random_normal(stddev=0.01)": (0.01, 0.1),
}


def weights(initializer, replicas=1):
    """The initial weights of a head that is split over replicas."""
    strategy = plsc_tf.strategy(replicas)
    with strategy.scope():
        head = plsc_tf.ShardedHead(CLASSES, initializer=initializer, seed=3)
        head.build(SIZE, strategy)
    return head.weights_as_numpy()


@pytest.mark.parametrize("text", CASES)
def test_an_initializer_means_what_it_means_in_keras(text):
    deviation, bound = CASES[text]
    theirs = initializers.parse(text)
    as_object = type(theirs)(**theirs.get_config() | {"seed": None})
    found = weights(text)
    np.testing.assert_array_equal(found, weights(as_object))
    # 160,000 numbers: the deviation's own error is below 0.2 %.
    assert abs(found.mean()) < 5 * deviation / np.sqrt(found.size)
    np.testing.assert_allclose(found.std(), deviation, rtol=0.01)
    assert np.abs(found).max() <= bound * 1.0001
    # Keras's own numbers are spread alike.
    numbers = np.asarray(theirs((SIZE, CLASSES)))
    np.testing.assert_allclose(found.std(), numbers.std(), rtol=0.02)
    if "uniform" in text or "truncated" in text:
        assert np.abs(found).max() > 0.99 * bound


@pytest.mark.parametrize("text", [None, "he_normal", "random_uniform(maxval=1)"])
def test_replicas_draw_the_same_weights(text):
    np.testing.assert_array_equal(weights(text), weights(text, replicas=3))


def test_constants():
    assert (weights("constant(0.1)") == np.float32(0.1)).all()
    assert (weights(keras.initializers.Ones()) == 1).all()
    assert (weights("random_normal(mean=2, stddev=0)") == 2).all()


def test_the_ordinary_weights_did_not_change():
    """N(0, sqrt(2 / (emb + C))), in blocks of 4,096 rows with a seed each."""
    expected = np.concatenate(
        [
            np.random.default_rng([3, block]).standard_normal((4096, SIZE), np.float32)
            for block in range(2)
        ]
    )[:CLASSES]
    expected = np.float32(np.sqrt(2.0 / (SIZE + CLASSES)) * expected)
    np.testing.assert_array_equal(weights(None), expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("xavier", "must be one of .*glorot_normal.*Received: .*'xavier'"),
        ("he_normal(stddev=1)", "he_normal.*unexpected keyword argument 'stddev'"),
        ("truncated_normal(stddev=x)", "stddev must be a number"),
        ("random_normal(stddev=-1)", "stddev must not be negative"),
        ("variance_scaling(scale=0)", ".scale. must be positive float"),
        ("variance_scaling(mode=fan)", "mode.*fan_out"),
        ("he_normal(seed=1)", "seed"),
        ("he_normal(", "must be one of"),
        ("constant(--1)", "value must be a number"),
        ("random_uniform(minval=1)", "nor minval above maxval"),
    ],
)
def test_wrong_initializers(text, words):
    with pytest.raises(UsageError, match=f"head_initializer: .*{words}"):
        parse([f"--head_initializer={text}"])


def test_objects_that_are_no_such_initializers():
    with pytest.raises(ValueError, match="seed of the training.*HeNormal.seed=1"):
        initializers.describe(keras.initializers.HeNormal(seed=1))
    with pytest.raises(ValueError, match="one of Keras.s"):
        initializers.describe(keras.initializers.Orthogonal())
    with pytest.raises(ValueError, match="one of Keras.s"):
        initializers.describe(tf.zeros)
