"""A training run that two replicas saved continues on any other number of them."""

import functools

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.training import state
from plsc_tf.training.average import Averaging
from tests.networks import flat

CLASSES = 13  # divides by none of 2, 3 and 4
BATCH = 24
# Optimizer, options of the head, options of `compile`.
CASES = {
    "momentum": (
        functools.partial(plsc_tf.Momentum, 0.05),
        {},
        {"averaging": Averaging(0.9)},
    ),
    "bias": (  # and slots of half the size, and synchronized batch norm
        functools.partial(keras.optimizers.Adam, 0.01),
        {"loss": plsc_tf.SOFTMAX},
        {"head_slot_dtype": "bfloat16"},
    ),
    "8 bits": (
        functools.partial(plsc_tf.Momentum, 0.05),
        {"weight_dtype": "int8", "seed": 9},  # the seed of the rounding
        {"head_slot_dtype": "int8"},
    ),
    "sampled": (
        functools.partial(keras.optimizers.Adam, 0.01),
        {"sample_rate": 0.5, "weight_dtype": "float8"},
        {},
    ),
}


def make_model(case, replicas):
    """The model of a case, which starts with other weights on every number."""
    optimizer, head, options = CASES[case]
    keras.utils.set_random_seed(replicas)
    norm = [keras.layers.BatchNormalization(synchronized=True)]
    with plsc_tf.strategy(replicas).scope():
        layers = [keras.layers.Dense(6), *(norm if case == "bias" else [])]
        backbone = flat((4, 4, 3), *layers, keras.layers.Dense(5))
        head = plsc_tf.ShardedHead(CLASSES, scale=8.0, **{"seed": replicas} | head)
        model = plsc_tf.Classifier(backbone, head)
        model.compile(optimizer(), **options)
    return model


def train(model, first, last):
    """Runs steps of their own batches; returns their losses."""
    losses = []
    for step in range(first, last):
        rng = np.random.default_rng(step)
        images = rng.integers(0, 256, (BATCH, 4, 4, 3)).astype(np.uint8)
        labels = rng.integers(0, CLASSES, BATCH)
        losses.append(model.train_on_batch(images, labels)["loss"])
    return losses


def arrays(model):
    return {**model.head.arrays(), **model.trainer.updater.slots()}


def values(model):
    """`{name: array}` of every row, bias, slot, weight and counter."""
    found = {name: rows.read(0, CLASSES) for name, rows in arrays(model).items()}
    found |= {f"backbone {i}": w.numpy() for i, w in enumerate(model.backbone.weights)}
    variables = state.training_variables(model).items()
    return found | {name: variable.numpy() for name, variable in variables}


@pytest.fixture(scope="module")
def saved(request, tmp_path_factory):
    """(case, checkpoint of two replicas, its values, their next losses)."""
    case, path = request.param, str(tmp_path_factory.mktemp("elsewhere") / "saved")
    model = make_model(case, 2)
    # Partial FC samples other classes on another number of replicas.
    if case == "sampled":
        rng = np.random.default_rng(0)
        for rows in arrays(model).values():
            rows.write(0, rng.standard_normal(rows.shape).astype(np.float32))
    else:
        train(model, 0, 2)
    state.save(path, model, {})
    return case, path, values(model), case != "sampled" and train(model, 2, 5)


# A diagonal of the matrix; `-m slow` runs the rest.
QUICK = {"momentum": 3, "bias": 1, "8 bits": 3, "sampled": 4}
MATRIX = [
    pytest.param(case, n, marks=[pytest.mark.slow] * (QUICK[case] != n))
    for case in CASES
    for n in (1, 3, 4)
]


@pytest.mark.parametrize(("saved", "replicas"), MATRIX, indirect=["saved"])
def test_every_value_is_restored_and_the_next_losses_are_equal(saved, replicas):
    case, path, expected, losses = saved
    model = make_model(case, replicas)
    state.restore(path, model)
    found = values(model)
    assert found.keys() == expected.keys()
    assert ("bias" in found) == (case == "bias")
    adam = case in ("bias", "sampled")
    assert ({"weight/momentum"} if adam else {"weight/velocity"}) <= found.keys()
    assert ("weight/average" in found) == (case == "momentum")
    for name, value in found.items():
        assert value.dtype == expected[name].dtype
        np.testing.assert_array_equal(value, expected[name])
    if losses:
        np.testing.assert_allclose(train(model, 2, 5), losses, rtol=1e-5)
