"""A small model and small data for the tests of training."""

import keras
import numpy as np
import pytest

import plsc_tf
from tests.networks import compiled, convolved
from tests.training import checkpointed


@pytest.fixture(scope="module")
def model():
    """One model that the tests of a file train on: tracing takes the time."""
    return checkpointed.build(2)


def build(
    replicas=2,
    optimizer=None,
    batch_norm=False,
    dropout=0.0,
    loss=plsc_tf.ARCFACE,
    **compile_options,
):
    """A compiled classifier of 16 × 16 images."""

    def backbone():
        layers = [keras.layers.BatchNormalization()] if batch_norm else []
        layers.append(keras.layers.ReLU())
        return convolved((16, 16, 3), 8, *layers, dropout=dropout)

    head = plsc_tf.ShardedHead(5, loss=loss, scale=16.0)
    return compiled(backbone, head, replicas, optimizer, **compile_options)


@pytest.fixture
def make_model():
    """`build`, for tests that need a model of their own."""
    return build


@pytest.fixture(scope="module")
def built_once():
    return build()


@pytest.fixture
def any_model(built_once):
    """At step 0, of any weights: the tests of a file share it and its graphs."""
    built_once.trainer.position.global_step = 0
    built_once.optimizer.iterations.assign(0)
    return built_once


@pytest.fixture
def pictures():
    """uint8 `[20, 16, 16, 3]` noise and labels of five classes."""
    images = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3)).astype(np.uint8)
    return images, np.arange(20) % 5
