"""What does not make sense is refused before anything is trained."""

import numpy as np
import pytest
import tensorflow as tf


def empty(pictures):
    return pictures[0][:0], pictures[1][:0]


def test_an_empty_batch_is_refused_and_nothing_is_updated(make_model, pictures):
    model = make_model()
    model.train_on_batch(*pictures)  # or there were no momentum to move anything
    before = model.head.weights_as_numpy()
    with pytest.raises(ValueError, match="not empty.*0 images"):
        model.train_on_batch(*empty(pictures))
    np.testing.assert_array_equal(model.head.weights_as_numpy(), before)
    assert model.optimizer.iterations.numpy() == 1


def test_empty_arrays_are_refused(make_model, pictures):
    model = make_model()
    with pytest.raises(ValueError, match="empty"):
        model.fit(*empty(pictures), verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices(empty(pictures)).batch(4)
    with pytest.raises(ValueError, match="empty"):
        model.fit(dataset, verbose=0)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batches_of_no_examples_are_refused(make_model, pictures, batch_size):
    with pytest.raises(ValueError, match=f"batch_size={batch_size}"):
        make_model().fit(*pictures, batch_size=batch_size, verbose=0)


def test_arrays_of_different_lengths_are_refused(make_model, pictures):
    images, labels = pictures
    with pytest.raises(ValueError, match="20 images, 4 labels"):
        make_model().fit(images, labels[:4], verbose=0)


def test_negative_weights_are_refused(make_model, pictures):
    weights = np.ones(20)
    weights[3] = -1
    with pytest.raises(ValueError, match="negative.*example 3"):
        make_model().train_on_batch(*pictures, weights)


@pytest.mark.parametrize("steps", [0, -1])
def test_accumulation_over_no_parts_is_refused(make_model, steps):
    received = f"gradient_accumulation_steps={steps}"
    with pytest.raises(ValueError, match=received):
        make_model(gradient_accumulation_steps=steps)


def test_slots_in_another_type_are_refused(make_model):
    with pytest.raises(ValueError, match='"bfloat16".*float16'):
        make_model(head_slot_dtype="float16")
