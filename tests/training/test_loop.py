"""`fit`: epochs, callbacks, stopping, resuming."""

import pytest
import tensorflow as tf

import plsc_tf


def mock():
    """Four batches of 8 pictures, the last one of 6."""
    return plsc_tf.load(
        "mock", batch_size=8, image_size=(16, 16), num_classes=5, num_examples=30
    )


def test_arrays_datasets_and_our_data_all_fit(any_model, pictures):
    any_model.fit(*pictures, batch_size=10, epochs=1, verbose=0)
    assert any_model.trainer.position.global_step == 2
    any_model.fit(mock(), epochs=1, verbose=0)
    assert any_model.trainer.position.global_step == 6
    with pytest.raises(ValueError, match="Call .batch"):
        any_model.fit(tf.data.Dataset.from_tensor_slices(pictures))
    with pytest.raises(ValueError, match="y=labels"):
        any_model.fit(pictures[0])


def test_the_first_batch_must_be_the_largest(any_model, pictures):
    images, labels = pictures
    small_first = tf.data.Dataset.from_generator(
        lambda: ((images[:n], labels[:n]) for n in (4, 12)),
        output_signature=(
            tf.TensorSpec([None, 16, 16, 3], tf.uint8),
            tf.TensorSpec([None], tf.int64),
        ),
    )
    with pytest.raises(ValueError, match="must be the largest.*first=4, batch=12"):
        any_model.fit(small_first, verbose=0)
