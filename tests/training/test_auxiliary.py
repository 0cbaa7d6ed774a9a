"""Auxiliary logits: what their loss adds, and that they belong to the training only."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf import backbones
from plsc_tf.backbones.zoo.catalog import ENTRIES, Entry
from plsc_tf.jobs.memory_plan import planner, table
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.training import state
from plsc_tf.training.auxiliary import Auxiliary
from tests.marks import slow

CLASSES = 5
RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 256, (8, 16, 16, 3)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, 8)


@pytest.fixture
def small_zoo(monkeypatch):
    """A network of the zoo that is small, under a name of its own."""

    def build(image, arguments):
        x = keras.layers.Conv2D(4, 3, strides=2, name="conv1")(image)
        x = keras.layers.ReLU(name="middle")(x)
        x = keras.layers.Conv2D(6, 3, strides=2, name="conv2")(x)
        x = keras.layers.BatchNormalization(name="bn2")(x)
        return keras.layers.GlobalAveragePooling2D(name="pool")(x)

    monkeypatch.setitem(ENTRIES, "lenet", Entry(build, 16, 4, "lenet", "middle"))
    monkeypatch.setitem(backbones.build.__globals__["BUILDERS"], "lenet", build)


def model_of(replicas=1, weight=0.4, *, smoothing=0.0, optimizer=None):
    with make_strategy(replicas).scope():
        keras.utils.set_random_seed(1)
        backbone = backbones.build("lenet")
        options = {"weight": weight, "label_smoothing": smoothing}
        auxiliary = Auxiliary(backbone, CLASSES, **options) if weight else None
        head = plsc_tf.DenseHead(CLASSES, loss=plsc_tf.SOFTMAX)
        model = plsc_tf.Classifier(backbone, head, auxiliary=auxiliary)
        model.compile(optimizer or plsc_tf.Momentum(0.1))
    return model


def test_the_loss_is_the_heads_and_the_weighted_cross_entropy(small_zoo):
    """The step's loss and update, against a tape."""
    model = model_of(smoothing=0.1, optimizer="sgd")
    outputs = [model.backbone.outputs[0], model.backbone.get_layer("middle").output]
    middle = keras.Model(model.backbone.inputs[0], outputs)
    variables = model.trained_network_variables()
    targets = np.eye(CLASSES, dtype=np.float32)[LABELS]
    with tf.GradientTape() as tape:
        embeddings, features = middle(model.normalize(IMAGES), training=True)
        logits = model.auxiliary.branch(features, training=True)
        own = tf.linalg.matmul(embeddings, model.head.weight.variable, transpose_b=True)
        own += model.head.bias.variable
        losses = [
            tf.nn.softmax_cross_entropy_with_logits(labels, z)
            for labels, z in ((targets, own), (0.9 * targets + 0.1 / CLASSES, logits))
        ]
        total = tf.reduce_mean(losses[0]) + 0.4 * tf.reduce_mean(losses[1])
    found = tape.gradient(total, [v.value for v in variables])
    expected = [
        v.numpy() - 0.01 * np.asarray(gradient)
        for v, gradient in zip(variables, found, strict=True)
    ]
    loss = model.train_on_batch(IMAGES, LABELS)["loss"]
    assert loss == pytest.approx(float(total), rel=1e-5)
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, atol=1e-6)


def test_two_replicas_resume_on_one_and_the_export_has_none_of_it(small_zoo, tmp_path):
    model = model_of(2)
    model.train_on_batch(IMAGES, LABELS)
    state.save(str(tmp_path / "saved"), model, {})
    again = model_of(1)
    state.restore(str(tmp_path / "saved"), again)
    found, expected = (m.auxiliary.branch.get_weights() for m in (again, model))
    np.testing.assert_equal(found, expected)
    assert len(again.inference_network().outputs) == 1
    path = plsc_tf.export_saved_model(again, str(tmp_path / "export"))
    loaded = tf.saved_model.load(path)
    stored = sum(int(np.prod(v.shape)) for v in loaded.read_variables)
    assert stored <= model.backbone.count_params()


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_what_is_not_finite_of_the_branch_is_named(small_zoo, replicas):
    model = model_of(replicas)
    weight = model.auxiliary.branch.trainable_variables[-1]
    weight.assign(np.full(weight.shape, np.nan, np.float32))
    with pytest.raises(FloatingPointError, match=f"the weight {weight.path}"):
        model.train_on_batch(IMAGES, LABELS)


def test_a_loss_of_the_branch_that_is_not_finite_is_named(small_zoo):
    with pytest.raises(FloatingPointError, match="loss of the auxiliary logits"):
        model_of(weight=np.inf).train_on_batch(IMAGES, LABELS)


def planned(folder, **changes):
    """The plan of training the small network with Adam on two devices."""
    given = {
        "dataset_name": "mock",
        "model_name": "lenet",
        "image_shape": (3, 16, 16),
        "loss_type": "softmax",
        "optimizer": "adam",
        "num_classes": CLASSES,
        "num_replicas": 2,
        "batch_size": 8,
        "device_memory_gb": 4.0,
        "model_save_dir": str(folder),
        **changes,
    }
    return planner.plan(Settings.from_values(**given))


def test_the_plan_of_the_memory_counts_them(small_zoo, tmp_path):
    plain, found = planned(tmp_path, aux_logits_weight=0), planned(tmp_path)
    # Convolutions of 27 x 4 and 36 x 6, their biases, scale and offset of the norm.
    assert plain.backbone.weights == 4 * (108 + 4 + 216 + 6 + 12)
    # From 4 channels to 128 and 768, an offset each; 768 weights and a bias per class.
    branch = 4 * (4 * 128 + 128 + 128 * 768 + 768 + 769 * CLASSES)
    assert found.backbone.weights == plain.backbone.weights + branch
    assert found.backbone.slots == 2 * found.backbone.weights
    assert found.backbone.statistics == 4 * 2 * (6 + 128 + 768)
    assert found.backbone.operations > plain.backbone.operations
    assert "lenet and its auxiliary logits" in table.text(found)
    assert "auxiliary" not in table.text(plain)
    # A replica's 8 examples: logits and what becomes of them.
    many = planned(tmp_path, num_classes=5000)
    more = many.backbone.activations - found.backbone.activations
    assert more >= 2 * 8 * 4 * (5000 - CLASSES)
    # More of them are refused, however much memory there is.
    assert found.most_classes() <= 50_000


def test_the_plan_has_frozen_weights_once(small_zoo, tmp_path):
    found = planned(tmp_path, aux_logits_weight=0, freeze_layers="conv2")
    assert found.backbone.weights == 4 * (108 + 4 + 12)
    assert found.backbone.statistics == 4 * 12
    assert found.items()["backbone weights"] == 4 * (108 + 4 + 216 + 6 + 12)
    assert found.items()["backbone slots"] == 2 * found.backbone.weights


def test_networks_without_and_too_many_classes_are_refused():
    backbone = backbones.build("cifarnet", image_shape=(8, 8, 3))
    with pytest.raises(ValueError, match="'cifarnet' has no auxiliary logits"):
        Auxiliary(backbone, 10)
    with pytest.raises(ValueError, match="aux_logits_weight=0"):
        Auxiliary(backbone, 1_000_000)
