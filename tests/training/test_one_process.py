"""A notebook's process: cells run twice, other strategies, other batches, mistakes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from tests.training.conftest import build


def cell(pictures, replicas):
    """What stands in a cell; returns the losses of its epochs."""
    model = build(replicas, lambda: keras.optimizers.SGD(0.01, momentum=0.9))
    return model.fit(*pictures, batch_size=7, epochs=2, verbose=0).history["loss"]


def test_a_cell_may_be_run_twice_and_on_other_numbers_of_replicas(pictures):
    runs = [cell(pictures, replicas) for replicas in (1, 2, 1)]
    assert runs[0][1] < runs[0][0]
    assert runs[2] == runs[0]
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-4)


def test_a_mistake_leaves_model_and_process_as_they_were(make_model, pictures):
    images, labels = pictures
    model, other = make_model(replicas=1), make_model(replicas=1)

    def mistakes():
        yield lambda: model.train_on_batch(images, labels + 5)
        yield lambda: model.train_on_batch(images[:, :9], labels)
        dataset = tf.data.Dataset.from_tensor_slices((images, labels + 5)).batch(4)
        yield lambda: model.fit(dataset, verbose=0)

    for mistake in mistakes():
        with pytest.raises(ValueError):  # noqa: PT011 - whichever it is
            mistake()
        one, right = (m.train_on_batch(images, labels)["loss"] for m in (model, other))
        assert one == right
    assert model.trainer.position.global_step == 3


def test_a_model_may_be_compiled_again(make_model, pictures):
    model = make_model(1)
    model.train_on_batch(*pictures)
    with model.strategy.scope():
        model.compile(plsc_tf.Momentum(0.0, l2=0.0))
    before = model.head.weights_as_numpy()
    first = model.train_on_batch(*pictures)["loss"]
    # A rate of 0 moves nothing; the velocity of before is gone.
    assert model.train_on_batch(*pictures)["loss"] == first
    np.testing.assert_array_equal(model.head.weights_as_numpy(), before)
