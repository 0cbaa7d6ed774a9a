"""What is not finite anywhere leaves everything everywhere as it was."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.heads.adaptive_margins import ADAFACE, CURRICULARFACE
from plsc_tf.training.loss_scale import LossScale
from tests.marks import slow
from tests.networks import compiled
from tests.training import checkpointed

CLASSES, BATCH = 13, 16
MARK = 400.0  # no picture is that bright


class Overflow(keras.layers.Layer):
    """Its gradient is infinite for a batch that holds a marked picture."""

    def call(self, x, images):
        marked = tf.reduce_any(images > (MARK - 127.5) / 128 - 0.01)

        @tf.custom_gradient
        def pass_on(x):
            return tf.identity(x), lambda g: tf.where(marked, np.inf, 1.0) * g

        return pass_on(x)


def network():
    images = keras.Input((4, 4, 3))
    x = keras.layers.Dense(4)(images)
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    x = Overflow()(x, images)
    return keras.Model(images, keras.layers.Dense(6)(keras.layers.Flatten()(x)))


def state_of(model):
    """Everything that a step may move, from every replica."""
    states = {k: v.numpy() for k, v in model.head.state_variables.items()}
    steps = {"steps": np.array(model.trainer.position.global_step)}
    return checkpointed.snapshot(model) | states | steps


def head_of(kind, **options):
    return functools.partial(kind, CLASSES, scale=16.0, **options)


TILED = head_of(plsc_tf.ShardedHead, loss=CURRICULARFACE, tile_rows=4)
NARROW = {"head_slot_dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("replicas", "head", "optimizer", "options"),
    [
        (2, TILED, plsc_tf.Momentum, {**NARROW, "jit_compile": True}),
        slow(4, TILED, plsc_tf.Momentum, NARROW),
        slow(
            2,
            head_of(plsc_tf.ShardedHead, loss=ADAFACE, sample_rate=0.7),
            lambda: keras.optimizers.Adam(global_clipnorm=1.0),
            {"gradient_accumulation_steps": 2},
        ),
        (2, head_of(plsc_tf.DenseHead, loss=plsc_tf.SOFTMAX), plsc_tf.Momentum, {}),
    ],
    ids=["curricularface", "four_replicas", "adaface_sampled", "dense"],
)
def test_a_bad_number_anywhere_skips_a_step_on_all(replicas, head, optimizer, options):
    scale = LossScale(8.0, incr_every_n_steps=100, decr_every_n_nan_or_inf=2)
    model = compiled(network, head(), replicas, optimizer, loss_scale=scale, **options)
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (BATCH, 4, 4, 3)).astype(np.float32)
    labels = np.arange(BATCH) % CLASSES

    def skips(expected_scale, images=images):
        before = state_of(model)
        outcome = model.train_on_batch(images, labels)
        assert outcome["finite"] is False
        np.testing.assert_equal(state_of(model), before)  # NaN equals NaN here
        assert float(scale.value()) == expected_scale
        return outcome["loss"]

    def trains():
        rows = model.head.weights_as_numpy()
        assert np.isfinite(model.train_on_batch(images, labels)["loss"])
        assert (model.head.weights_as_numpy() != rows).any()

    trains()
    # The gradient of the last replica's last picture: losses and embeddings are fine.
    marked = images.copy()
    marked[-1, 0, 0, 0] = MARK
    assert np.isfinite(skips(8, marked))
    assert np.isfinite(skips(4, marked))
    trains()
    # Embeddings that overflow, from finite pictures.
    huge = images.copy()
    huge[-1] = 3e38
    skips(4, huge)
    skips(2, huge)
    # One number of the last shard.
    weight = model.head.arrays()["weight"]
    rows = weight.read(CLASSES - 1, CLASSES)
    for expected, bad in ((2, np.inf), (1, np.nan)):
        weight.write(CLASSES - 1, np.where(np.arange(6) == 2, bad, rows))
        skips(expected)
        weight.write(CLASSES - 1, rows)
    trains()


def test_without_a_loss_scale_the_step_raises_and_leaves_everything():
    head = head_of(plsc_tf.ShardedHead, loss=CURRICULARFACE)()
    model = compiled(network, head, 1, plsc_tf.Momentum)
    images = np.full((4, 4, 4, 3), 99, np.float32)
    model.train_on_batch(images, [0, 1, 2, 3])
    before = state_of(model)
    images[0, 3, 3, 2] = MARK
    with pytest.raises(FloatingPointError, match="step did not change the weights"):
        model.train_on_batch(images, [0, 1, 2, 3])
    np.testing.assert_equal(state_of(model), before)
    model.train_on_batch(images[1:], [1, 2, 3])
    assert (model.head.weights_as_numpy() != before["weight"]).any()


def test_a_bad_class_that_is_not_sampled_does_no_harm():
    # It takes no part: the step before or after that samples it is skipped.
    head = plsc_tf.ShardedHead(40, scale=16.0, sample_rate=0.2)
    model = compiled(network, head, 2, plsc_tf.Momentum, loss_scale=LossScale(8.0))
    images = np.full((4, 4, 4, 3), 99, np.float32)
    weight = head.arrays()["weight"]
    weight.write(33, np.full((1, 6), np.nan, np.float32))
    outcomes = []
    for _ in range(12):
        outcome = model.train_on_batch(images, [0, 1, 22, 23])
        outcomes.append(outcome.get("finite", True))
        others = np.delete(weight.read(0, 40), 33, axis=0)
        assert np.isfinite(others).all() and np.isnan(weight.read(33, 34)).all()
        if not outcomes[-1]:
            break
    assert outcomes[0] and not outcomes[-1]
