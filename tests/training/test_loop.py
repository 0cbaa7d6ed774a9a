"""`fit`: epochs, callbacks, stopping, resuming."""

import keras
import pytest
import tensorflow as tf

import plsc_tf


def mock(batch_size=8, num_examples=30, **options):
    return plsc_tf.load(
        "mock",
        batch_size=batch_size,
        image_size=(16, 16),
        num_classes=5,
        num_examples=num_examples,
        **options,
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


def test_keras_callbacks_work(any_model, tmp_path):
    rates = []
    history = any_model.fit(
        mock(),
        epochs=5,
        verbose=0,
        callbacks=[
            keras.callbacks.CSVLogger(tmp_path / "log.csv"),
            keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9),
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: rates.append(logs["loss"])
            ),
        ],
    )
    assert len(history.history["loss"]) == 2  # no second epoch is so much better
    assert (tmp_path / "log.csv").read_text().startswith("epoch,loss")
    assert rates == history.history["loss"]


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
