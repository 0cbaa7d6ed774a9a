"""Weights of examples and classes mean what a plain Keras model means by them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from tests.marks import slow
from tests.networks import flat

RNG = np.random.default_rng(2)
IMAGES = RNG.integers(0, 256, (23, 8, 8, 3)).astype(np.uint8)
LABELS = RNG.integers(0, 5, 23)
# One example weighs nothing, but it is one.
SAMPLES = np.where(np.arange(23) == 4, 0, RNG.uniform(0.2, 3, 23)).astype(np.float32)
CLASSES = {0: 0.5, 3: 2.5}
NAMES = ("loss", "accuracy", "weighted_accuracy")


def backbone():
    return flat((8, 8, 3), keras.layers.Dense(6))


def build(replicas, **options):
    """(a `Classifier` of plain softmax, the same in Keras on one device)."""
    with plsc_tf.strategy(replicas).scope():
        head = plsc_tf.ShardedHead(5, loss=plsc_tf.SOFTMAX)
        model = plsc_tf.Classifier(backbone(), head)
        model.compile(keras.optimizers.SGD(0.1), **options)
    scale = keras.layers.Rescaling(1 / 128, offset=-127.5 / 128)
    layers = [keras.Input((8, 8, 3)), scale, backbone(), keras.layers.Dense(5)]
    plain = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain.compile(keras.optimizers.SGD(0.1), loss, **options)
    return model, plain


def set_weights(model, plain):
    """Gives both the same weights."""
    rng = np.random.default_rng(3)
    shapes = [weight.shape for weight in plain.weights]
    weights = [rng.normal(0, 0.1, shape).astype(np.float32) for shape in shapes]
    plain.set_weights(weights)
    plain.reset_metrics()
    model.backbone.set_weights(weights[:-2])
    model.head.arrays()["weight"].write(0, weights[-2].T)
    model.head.arrays()["bias"].write(0, weights[-1])


@pytest.fixture(scope="module", params=[slow(1), 2], ids=["1", "2"])
def built(request):
    metrics = {"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]}
    return build(request.param, **metrics)


@pytest.fixture
def models(built):
    set_weights(*built)
    return built


def assert_equal(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def assert_equally_trained(model, plain):
    network, last = plain.layers[-2:]
    head = {name: rows.read(0, 5) for name, rows in model.head.arrays().items()}
    for own, theirs in zip(
        [*model.backbone.get_weights(), head["weight"].T, head["bias"]],
        [*network.get_weights(), *last.get_weights()],
        strict=True,
    ):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-6)


with_and_without_weights = pytest.mark.parametrize(
    "weights",
    [{"sample_weight": SAMPLES}, {"class_weight": CLASSES}, {}],
    ids=["samples", "classes", "none"],
)


@with_and_without_weights
def test_fit_and_its_validation(models, weights):
    # Of 23 examples the last batch has 2, which replicas pad.
    options = {"batch_size": 7, "epochs": 2, "shuffle": False, "verbose": 0, **weights}
    options["validation_data"] = (IMAGES, LABELS, SAMPLES)
    found, expected = (model.fit(IMAGES, LABELS, **options) for model in models)
    assert_equal(found.history, expected.history)
    assert_equally_trained(*models)


@pytest.mark.parametrize("sample_weight", [SAMPLES, None], ids=["samples", "none"])
def test_evaluate_and_test_on_batch(models, sample_weight):
    weights = {"sample_weight": sample_weight, "return_dict": True}
    methods = {"evaluate": {"batch_size": 7, "verbose": 0}, "test_on_batch": {}}
    for name, options in methods.items():
        models[1].reset_metrics()
        calls = (getattr(model, name) for model in models)
        assert_equal(*(call(IMAGES, LABELS, **weights, **options) for call in calls))


@with_and_without_weights
def test_train_on_batch(models, weights):
    model, plain = models
    expected = plain.train_on_batch(IMAGES, LABELS, return_dict=True, **weights)
    found = model.train_on_batch(IMAGES, LABELS, return_dict=True, **weights)
    assert_equal(found, expected)
    assert_equally_trained(*models)


def test_train_on_batch_without_names(models):
    found = models[0].train_on_batch(IMAGES, LABELS, return_dict=False)
    set_weights(*models)
    named = models[0].train_on_batch(IMAGES, LABELS)
    assert found == pytest.approx([named[name] for name in NAMES], rel=1e-6)


def test_a_data_set_with_weights_in_several_steps_per_call():
    # A weighted metric alone is not called so.
    models = build(1, weighted_metrics=["accuracy"], steps_per_execution=2)
    set_weights(*models)
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS, SAMPLES)).batch(5)
    found, expected = (one.fit(data, shuffle=False, verbose=0) for one in models)
    assert_equal(found.history, expected.history)
    assert_equally_trained(*models)
