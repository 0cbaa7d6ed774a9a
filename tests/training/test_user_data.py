"""Data as Keras's users have it: endless sets, arrays, weights, and their mistakes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.python import from_dataset
from plsc_tf.training.user_data import ArrayBatches
from tests.training.checkpointed import snapshot
from tests.training.conftest import build


class Fed(keras.callbacks.Callback):
    """The first pixel of the first picture of every step, and the replicas' devices."""

    def __init__(self):
        super().__init__()
        self.pixels, self.devices = [], set()

    def on_train_batch_begin(self, batch, logs=None):
        images = self.model.trainer.step_batch[0]
        local = self.model.strategy.experimental_local_results(images)
        self.pixels.append(int(local[0][0, 0, 0, 0]))
        self.devices.add(tuple(part.device[-5:] for part in local))


@pytest.fixture(scope="module")
def model():
    return build(batch_norm=True, loss=plsc_tf.SOFTMAX)


@pytest.fixture(scope="module")
def numbered():
    """uint8 `[20, 16, 16, 3]`, picture k full of k, and labels of five classes."""
    images = np.ones((20, 16, 16, 3), np.uint8) * np.arange(20)[:, None, None, None]
    return images.astype(np.uint8), np.arange(20) % 5


def batched(arrays, size):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(size)


def test_epochs_of_some_steps_go_on_where_the_last_ended(model, numbered):
    def fed(data, **options):
        seen = Fed()
        model.fit(data, verbose=0, callbacks=[seen], **options)
        assert seen.devices == {("CPU:0", "CPU:1")}
        return seen.pixels

    data, options = batched(numbered, 4), {"epochs": 3, "steps_per_epoch": 2}
    assert fed(data.repeat(), **options) == [0, 4, 8, 12, 16, 0]
    # One that ends begins anew, as in Keras.
    assert fed(data, epochs=2, steps_per_epoch=4) == [0, 4, 8, 12, 16, 0, 4, 8]
    resumed = {"initial_epoch": 1, "initial_step": 1, **options}
    assert fed(data.repeat(), **resumed) == [12, 16, 0]


def test_arrays_datasets_and_our_data_all_fit(model, numbered):
    position = model.trainer.position
    position.global_step = 0
    model.fit(*numbered, batch_size=10, verbose=0)
    assert position.global_step == 2
    # Four batches of 8 pictures, the last one of 6.
    options = {"batch_size": 8, "image_size": (16, 16), "num_classes": 5}
    model.fit(plsc_tf.load("mock", **options, num_examples=30), verbose=0)
    assert position.global_step == 6
    with pytest.raises(ValueError, match="Call .batch"):
        model.fit(tf.data.Dataset.from_tensor_slices(numbered))
    with pytest.raises(ValueError, match="y=labels"):
        model.fit(numbered[0])


def test_the_first_batch_must_be_the_largest(model, numbered):
    images, labels = numbered
    spec = tf.TensorSpec([None, 16, 16, 3], tf.uint8), tf.TensorSpec([None], tf.int64)
    small_first = tf.data.Dataset.from_generator(
        lambda: ((images[:n], labels[:n]) for n in (4, 12)), output_signature=spec
    )
    with pytest.raises(ValueError, match="must be the largest.*first=4, batch=12"):
        model.fit(small_first, verbose=0)


def test_what_has_no_end_is_refused(model, numbered):
    endless = batched(numbered, 10).repeat()
    with pytest.raises(ValueError, match="Set steps_per_epoch, or"):
        model.fit(endless, verbose=0)
    with pytest.raises(ValueError, match="Set validation_steps, or"):
        model.fit(*numbered, validation_data=endless, verbose=0)
    with pytest.raises(ValueError, match="Set steps, or"):
        model.evaluate(endless)
    with pytest.raises(ValueError, match="Set steps"):
        model.predict(endless)
    assert model.predict(endless, steps=1).shape == (10, 8)
    whole = model.evaluate(*numbered)
    assert model.evaluate(endless, steps=2) == pytest.approx(whole, rel=1e-5)
    model.fit(endless, verbose=0, stop_at_step=model.trainer.position.global_step + 1)


def orders(data, epoch, start_step=0):
    return [labels.tolist() for _, labels in data.epoch(epoch, start_step)]


def test_the_order_of_arrays_is_that_of_the_epoch():
    arrays = np.zeros((8, 1, 1, 3)), np.arange(8)
    data, again = ArrayBatches(arrays, 3, True), ArrayBatches(arrays, 3, True)
    first, second = orders(data, 0), orders(data, 1)
    assert first != second and sorted(sum(first, [])) == list(range(8))
    # Resumed in another process, in the middle of the second epoch.
    assert orders(again, 1, 2) == second[2:]
    assert orders(ArrayBatches(arrays, 3, True, begun=(3, 1)), 1) == second
    # A second `fit` with the same arrays.
    assert orders(ArrayBatches(arrays, 3, True, begun=(6, 0)), 0) not in (first, second)
    assert orders(ArrayBatches(arrays, 3, False), 5) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_evaluating_our_own_data_is_in_the_order_of_the_files(model, numbered):
    images = numbered[0].copy()
    images[:, :, :8] = 200  # mirroring shows
    data = tf.data.Dataset.from_tensor_slices((images, numbered[1]))
    options = PipelineOptions(image_size=(16, 16), augmentation="face", shuffle=True)
    ours = Batches(from_dataset(data, num_classes=5), 6, options=options)
    np.testing.assert_allclose(model.predict(ours), model.embed(images), atol=1e-5)
    expected = model.evaluate(images, numbered[1])
    assert model.evaluate(ours) == pytest.approx(expected, rel=1e-5)


def test_evaluating_does_not_depend_on_which_replica_sees_what(model, pictures):
    images, labels = pictures
    model.fit(images, labels, batch_size=4, epochs=2, verbose=0)
    swapped = np.arange(20).reshape(5, 2, 2)[:, ::-1].reshape(-1)
    model.trainer.statistics_differ = True
    one = model.evaluate(images, labels, batch_size=4)
    two = model.evaluate(images[swapped], labels[swapped], batch_size=4)
    # Sums of 20 losses in another order, of products in batches of another order.
    assert one == pytest.approx(two, rel=1e-5)


def test_weights_may_be_a_column(model, numbered):
    weights = np.linspace(0, 1, 20, dtype=np.float32)
    expected = model.evaluate(*numbered, sample_weight=weights)
    for arrays in ((*numbered, weights), (*numbered, weights[:, None])):
        assert model.evaluate(batched(arrays, 10)) == pytest.approx(expected, rel=1e-5)
    column = batched((*numbered, weights[:, None]), 10)
    model.fit(column, class_weight={0: 2.0}, verbose=0)
    model.train_on_batch(*numbered, sample_weight=weights[:, None])


BAD = {
    "0...1": (lambda x, y, w: (x / 255.0, y, w), "must have pixels in 0...255"),
    "-1...1": (lambda x, y, w: (x / 127.5 - 1, y, w), "Received: pixels=.?-1...1"),
    "ImageNet's": (lambda x, y, w: ((x / 255 - 0.456) / 0.225, y, w), "in 0...255"),
    "fractions": (lambda x, y, w: (x, y + 0.7, w), "whole numbers"),
    "strings": (lambda x, y, w: (x, y.astype(str), w), "whole numbers"),
    "negative": (lambda x, y, w: (x, y, -w), "must not be negative"),
    "nan": (lambda x, y, w: (x, y, w * np.nan), "must not be negative"),
    "too large": (lambda x, y, w: (x, y + 1, w), r"num_classes=5\).*labels=\[5"),
    "below 0": (lambda x, y, w: (x, y - 1, w), r"num_classes=5\).*labels=\[-1"),
    "channels": (lambda x, y, w: (x[..., :1], y, w), r"np.repeat\(x, 3, axis=-1\)"),
    "order": (lambda x, y, w: (x.transpose(0, 3, 1, 2), y, w), r"0, 2, 3, 1"),
    "size": (lambda x, y, w: (x[:, ::2], y, w), r"of 16 x 16 pixels.*size=8 x 16\."),
    "one-hot": (lambda x, y, w: (x, np.eye(5)[y], w), r"shape=\(\d0, 5\).*argmax"),
}


@pytest.mark.parametrize("kind", BAD)
def test_mistakes_are_told_whatever_the_container(model, pictures, kind):
    change, message = BAD[kind]
    x, y, w = change(*pictures, np.ones(20, np.float32))
    data = batched((x, y, w), 10)
    model.evaluate(*pictures)  # averages the batch-norm statistics
    model.trainer.position.global_step = 3
    before = snapshot(model)
    for call in (
        lambda: model.fit(x, y, sample_weight=w, verbose=0),
        lambda: model.fit(data, verbose=0),
        lambda: model.evaluate(x, y, sample_weight=w),
        lambda: model.evaluate(data),
        lambda: model.train_on_batch(x, y, w),
    ):
        with pytest.raises(ValueError, match=message.replace("...", r"\.\.\.")):
            call()
    np.testing.assert_equal(snapshot(model), before)
    assert model.trainer.position.global_step == 3


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        (np.zeros((16, 16, 3), np.uint8), r"images\[np.newaxis\]"),
        (np.zeros((4, 16, 16), np.uint8), "np.stack"),
        (np.zeros((4, 16, 16, 4), np.uint8), r"width, 3\].*shape=\(4, 16"),
        (np.full((4, 16, 16, 3), 0.5), r"images must have pixels in 0\.\.\.255"),
    ],
)
def test_pictures_of_another_form_are_not_embedded(model, pictures, message):
    for call in (model.embed, model.predict, model.predict_on_batch):
        with pytest.raises(ValueError, match=message):
            call(pictures)


def test_pixels_and_whole_labels_may_have_any_type(model, numbered):
    images, labels = numbered
    expected = model.evaluate(images, labels)
    assert model.evaluate(images.astype(np.float32), labels) == expected
    for kind in (np.uint8, np.float32):
        found = model.evaluate(batched((images, labels.astype(kind)), 20))
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("freq", [0, -1, 0.5])
def test_a_frequency_that_is_none(model, numbered, freq):
    with pytest.raises(ValueError, match=f"validation_freq={freq}"):
        model.fit(*numbered, validation_data=numbered, validation_freq=freq)


def test_epochs_of_a_validation_and_what_callbacks_hear(model, numbered, tmp_path):
    heard = []
    listener = keras.callbacks.LambdaCallback(
        on_test_begin=lambda logs: heard.append("begin"),
        on_test_end=lambda logs: heard.append(sorted(logs)),
    )
    stop = keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=1e9)
    history = model.fit(
        *numbered,
        epochs=9,
        verbose=0,
        validation_data=numbered,
        validation_freq=[2, 4],
        callbacks=[listener, stop, keras.callbacks.CSVLogger(tmp_path / "log.csv")],
    )
    # The second validation is not better by so much.
    assert len(history.history["val_loss"]) == 2 and stop.stopped_epoch == 3
    assert heard == ["begin", ["loss"]] * 2
    assert (tmp_path / "log.csv").read_text().startswith("epoch,loss")


def test_data_without_examples_are_refused_and_nothing_is_updated(model, numbered):
    images, labels = numbered
    empty, before = (images[:0], labels[:0]), model.head.weights_as_numpy()
    for call, message in (
        (lambda: model.train_on_batch(*empty), "images=0, labels=0"),
        (lambda: model.fit(*empty), "images=0, labels=0"),
        (lambda: model.fit(batched(empty, 4)), "no batch"),
        (lambda: model.fit(images, labels[:4]), "images=20, labels=4"),
        (lambda: model.fit(*numbered, batch_size=0), "batch_size=0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    np.testing.assert_array_equal(model.head.weights_as_numpy(), before)


def test_compile_takes_metrics_as_keras_does(make_model):
    make_model(metrics=None)
    assert list(make_model(metrics="accuracy").ranked_metrics) == ["accuracy"]
    with pytest.raises(ValueError, match="metrics must be among.*Sparse"):
        make_model(metrics=[keras.metrics.SparseCategoricalAccuracy(), "precision"])
    with pytest.raises(ValueError, match="gradient_accumulation_steps=0"):
        make_model(gradient_accumulation_steps=0)
    for dtype in "float16", tf.int8:
        with pytest.raises(ValueError, match="int8. Received: head_slot_dtype="):
            make_model(head_slot_dtype=dtype)
    dense = plsc_tf.Classifier(make_model().backbone, plsc_tf.DenseHead(5))
    with pytest.raises(ValueError, match="sharded head.*head_slot_dtype=int8"):
        dense.compile(head_slot_dtype="int8")
    words = "no argument 'loss': pass it to the head.*loss="
    with pytest.raises(TypeError, match=words):
        make_model().compile("adam", "sparse_categorical_crossentropy", ["accuracy"])
