"""A step that is not finite: what is named, what is kept, what happens then."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.checkpoints import catalog
from plsc_tf.training import batching, diagnosis
from plsc_tf.training.sentinel import Sentinel
from tests.marks import slow
from tests.networks import compiled, flat


def batch_of(model, images, labels):
    weights = np.ones(len(labels), np.float32)
    tensors = (tf.constant(images), tf.constant(labels, tf.int64), tf.constant(weights))
    return batching.split(model.strategy, tensors)


def find(model, images, labels):
    return diagnosis.first_nonfinite(model, batch_of(model, images, labels))


def plant(variable, index, value=np.nan):
    array = variable.numpy()
    array[index] = value
    variable.assign(array)


@pytest.fixture
def batch(pictures):
    """float32 `[8, 16, 16, 3]` images, labels."""
    images, labels = pictures
    return images[:8].astype(np.float32), labels[:8]


def test_a_healthy_batch_has_nothing_to_find_and_leaves_no_trace(make_model, batch):
    model = make_model(batch_norm=True, dropout=0.5)
    model.train_on_batch(*batch)
    before = [v.numpy() for v in model.backbone.variables]
    assert find(model, *batch) is None
    np.testing.assert_equal([v.numpy() for v in model.backbone.variables], before)
    assert not any("call" in vars(layer) for layer in model.backbone.layers)


def test_an_image(make_model, batch):
    images, labels = batch
    images[5, 3, 2, 1] = np.nan
    images[6, 0] = np.inf
    # Each of the four parts has two images.
    found = find(make_model(replicas=2, gradient_accumulation_steps=2), images, labels)
    assert (found.kind, found.rows) == ("images", (5, 6))
    assert (found.nan, found.inf, found.dtype) == (1, 48, "float32")
    assert "the images of the batch" in str(found) and "examples 5" in str(found)


def test_a_weight_of_a_layer(make_model, batch):
    model = make_model(1, batch_norm=True)
    dense = model.backbone.layers[-1]
    plant(dense.kernel, (3, 4))
    found = find(model, *batch)
    assert (found.kind, found.name) == ("weight", dense.kernel.path)
    assert (found.shape, found.nan, found.rows) == (tuple(dense.kernel.shape), 1, ())
    plant(model.backbone.layers[0].bias, 2, np.inf)  # an earlier layer
    found = find(model, *batch)
    assert found.name == model.backbone.layers[0].bias.path and found.inf == 1


def test_the_output_of_a_layer_whose_weights_are_finite(make_model, batch):
    model = make_model(replicas=2)
    images, labels = batch
    images[6] = 1e30
    conv = model.backbone.layers[0]
    conv.kernel.assign(np.full(conv.kernel.shape, 1e30, np.float32))
    found = find(model, images, labels)
    assert (found.kind, found.name, found.rows) == ("output", conv.path, (6,))


def test_half_precision_overflows_where_float32_does_not(make_model, batch):
    model = make_model(replicas=2)
    conv = model.backbone.layers[0]
    plant(conv.bias, 1, 1e5)
    assert find(model, *batch) is None
    conv.dtype_policy = "mixed_float16"
    found = find(model, *batch)
    assert (found.kind, found.name, found.dtype) == ("output", conv.path, "float16")


@pytest.mark.parametrize(("replicas", "row"), [(2, 3), slow(1, 0), slow(3, 0)])
def test_a_class(make_model, batch, replicas, row):
    images, labels = (np.concatenate([part, part[:4]]) for part in batch)
    model = make_model(replicas)
    weight = model.head.weights_as_numpy()
    weight[row, 2] = np.nan
    model.head.set_weights_from_numpy(weight)
    found = find(model, images, labels)
    assert (found.kind, found.name, found.rows) == ("class weight", "weight", (row,))
    assert found.shape == (5, 8) and f"classes {row}" in str(found)


def network_with(layer):
    first, last = (keras.layers.Dense(8, name=name) for name in ("first", "last"))
    return flat((16, 16, 3), first, layer, last)


class RootOfZero(keras.layers.Layer):
    """Its outputs are finite, its gradient is 0 · ∞."""

    def call(self, inputs):
        return inputs + keras.ops.sqrt(inputs * 0.0)


@pytest.mark.parametrize(
    ("kind", "replicas", "parts"),
    [
        (plsc_tf.ShardedHead, 1, 2),
        (plsc_tf.DenseHead, 1, 1),
        slow(plsc_tf.ShardedHead, 2, 1),
        slow(plsc_tf.DenseHead, 2, 2),
    ],
)
def test_the_gradient_that_is_bad_first_on_the_way_back(batch, kind, replicas, parts):
    options, head = {"gradient_accumulation_steps": parts}, kind(5, scale=16.0)
    model = compiled(lambda: network_with(RootOfZero()), head, replicas, **options)
    found = find(model, *batch)
    # "last" is behind the bad layer and fine; of "first" the bias comes first.
    assert found.kind == "gradient" and found.name.endswith("first/bias")


class Penalised(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.log(keras.ops.sum(inputs) * 0.0))
        return inputs


def test_a_penalty(batch):
    model = compiled(lambda: network_with(Penalised()), plsc_tf.ShardedHead(5))
    found = find(model, *batch)
    assert found.kind == "penalty" and found.inf == 1


def dataset(images, labels, bad_step=None, steps=4):
    """Batches of 8, of which one holds a NaN."""
    images = np.stack([images] * steps)
    if bad_step is not None:
        images[bad_step, 2, 0, 0, 0] = np.nan
    labels = np.stack([labels] * steps)
    return tf.data.Dataset.from_tensor_slices((images, labels))


@pytest.fixture
def fit(any_model, batch, tmp_path):
    """Trains on batches of which one is bad, with a sentinel in `tmp_path`."""

    def run(bad_step, action="stop", *callbacks, steps=4):
        data = dataset(*batch, bad_step, steps)
        sentinel = Sentinel(tmp_path, action)
        return any_model.fit(data, verbose=0, callbacks=callbacks, sentinel=sentinel)

    return run


class Weights(keras.callbacks.Callback):
    """Keeps the first kernel, the rows of the classes and the logs after each step."""

    def __init__(self):
        super().__init__()
        self.kernels, self.rows, self.logs, self.results = [], [], [], []

    def on_train_batch_end(self, batch, logs=None):
        self.kernels.append(self.model.backbone.layers[0].kernel.numpy())
        self.rows.append(self.model.head.weights_as_numpy())
        self.logs.append(dict(logs))
        self.results.append(self.model.trainer.step_result)


def test_stop_names_the_tensor_and_keeps_the_batch(fit, any_model, batch, tmp_path):
    with pytest.raises(FloatingPointError) as caught:
        fit(bad_step=2)
    message = str(caught.value)
    path = tmp_path / "nonfinite" / "step_00000003.json"
    told = "batch of step 3 contain NaN", "examples 2", str(path), "on_nonfinite"
    assert all(words in message for words in told), message
    position = any_model.trainer.position
    assert (position.global_step, position.step) == (2, 2)
    report = json.loads(path.read_text())
    assert report["finding"]["kind"] == "images" and report["finding"]["rows"] == [2]
    assert report["labels"] == [2] and report["step_of_epoch"] == 2
    assert report["learning_rate"] == pytest.approx(0.05)
    with np.load(path.with_suffix(".npz")) as kept:
        assert kept["images"].shape == (8, 16, 16, 3)
        assert np.isnan(kept["images"]).sum() == 1
        np.testing.assert_array_equal(kept["labels"], batch[1])
        np.testing.assert_array_equal(kept["weights"], np.ones(8))


def test_skip_goes_on_with_the_weights_of_before(fit, any_model):
    weights = Weights()
    history = fit(1, "skip", weights)
    np.testing.assert_array_equal(weights.kernels[1], weights.kernels[0])
    np.testing.assert_array_equal(weights.rows[1], weights.rows[0])
    assert np.abs(weights.kernels[2] - weights.kernels[1]).max() > 0
    assert weights.results[1] == {} and weights.logs[1] == weights.logs[0]
    assert any_model.trainer.position.global_step == 4
    losses = [weights.results[i]["loss"] for i in (0, 2, 3)]
    assert history.history["loss"] == [pytest.approx(np.mean(losses))]


def test_the_run_stops_when_there_are_too_many(any_model, batch, tmp_path):
    images, labels = batch
    images[0, 0, 0, 0] = np.nan
    sentinel = Sentinel(tmp_path, "skip", limit=2)
    with pytest.raises(FloatingPointError, match="there were more than 2 such steps"):
        any_model.fit(dataset(images, labels, steps=4), verbose=0, sentinel=sentinel)
    assert sentinel.count == 3
    assert len(list((tmp_path / "nonfinite").glob("*.npz"))) == 3


def test_rollback_takes_the_checkpoint_and_skips_the_batch(fit, any_model, tmp_path):
    weights = Weights()
    fit(3, "rollback", weights, plsc_tf.Checkpoint(tmp_path, every_n_steps=2), steps=6)
    # Steps 1 2 | 3 4 5 6: a checkpoint after step 2, and step 4 is bad.
    np.testing.assert_array_equal(weights.kernels[3], weights.kernels[1])
    np.testing.assert_array_equal(weights.rows[3], weights.rows[1])
    assert np.abs(weights.kernels[2] - weights.kernels[1]).max() > 0
    # The slots are those of step 2 too: all batches are equal, so step 5 repeats 3.
    np.testing.assert_allclose(weights.kernels[4], weights.kernels[2], atol=1e-6)
    assert any_model.trainer.position.global_step == 6
    # The skipped step is no step of the schedule.
    assert int(any_model.optimizer.iterations.numpy()) == 5
    assert [step for step, _ in catalog.find_all(tmp_path)] == [2, 4, 6, 6]


def test_rollback_skips_checkpoints_that_are_not_finite(any_model, batch, tmp_path):
    any_model.train_on_batch(*batch)
    good = plsc_tf.Checkpoint(tmp_path)
    good.set_model(any_model)
    good.save("step_00000001")
    kernel = any_model.backbone.layers[0].kernel.numpy()
    any_model.train_on_batch(*batch)
    plant(any_model.backbone.layers[0].kernel, (0, 0, 0, 0))
    good.save("step_00000002")
    Sentinel(tmp_path, "rollback").handle(any_model, batch_of(any_model, *batch))
    np.testing.assert_array_equal(any_model.backbone.layers[0].kernel.numpy(), kernel)
    assert any_model.trainer.position.global_step == 2


def test_rollback_without_a_checkpoint_stops(fit):
    with pytest.raises(FloatingPointError, match="no checkpoint with finite"):
        fit(1, "rollback")


def test_what_cannot_be_reproduced_is_said(any_model, batch, tmp_path):
    with pytest.raises(FloatingPointError, match="when the batch was run again"):
        Sentinel(tmp_path, "stop").handle(any_model, batch_of(any_model, *batch))
    report = json.loads((tmp_path / "nonfinite" / "step_00000001.json").read_text())
    assert report["finding"] is None


def test_wrong_arguments_are_refused(tmp_path):
    words = "stop, rollback, skip. Received: action='halt'"
    with pytest.raises(ValueError, match=words):
        Sentinel(tmp_path, "halt")
    with pytest.raises(ValueError, match="Received: limit=0"):
        Sentinel(tmp_path, limit=0)
