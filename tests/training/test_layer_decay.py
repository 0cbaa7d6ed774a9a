"""A layer's own weight decay takes the place of that of all weights."""

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.options import cli
from plsc_tf.training.weight_rules import WeightRule
from tests.marks import slow
from tests.training import checkpointed

RATE, COMMON, OWN = 0.1, 0.02, 0.5
OPTIMIZERS = {
    "momentum": lambda: (plsc_tf.Momentum(RATE, l2=COMMON), 0.0),
    "sgd": lambda: (keras.optimizers.SGD(RATE), COMMON),
    "adamweightdecay": lambda: (keras.optimizers.AdamW(RATE, COMMON, epsilon=1.0), 0.0),
}


def step(kind, factors, spared=()):
    """The network's weights before and after one step, `{path: array}`."""
    keras.utils.set_random_seed(1)
    with plsc_tf.strategy(num_replicas=1).scope():
        inputs = keras.Input((8, 8, 3))
        x = keras.layers.Conv2D(4, 3, name="conv1", bias_initializer="ones")(inputs)
        x = keras.layers.Conv2D(4, 3, name="conv10")(x)
        x = keras.layers.GlobalAveragePooling2D()(x)
        network = keras.Model(inputs, keras.layers.Dense(6, name="dense")(x))
        model = plsc_tf.Classifier(network, plsc_tf.ShardedHead(num_classes=5))
        optimizer, l2 = OPTIMIZERS[kind]()
        if spared:
            optimizer.exclude_from_weight_decay(var_names=spared)
    model.compile(optimizer, l2=l2, weight_decay_on=factors)
    values = {one.path: one.numpy() for one in network.weights}
    random = np.random.default_rng(0)
    model.train_on_batch(random.uniform(0, 255, (4, 8, 8, 3)), [0, 1, 2, 3])
    return values, {one.path: one.numpy() for one in network.weights}


@pytest.mark.parametrize("kind", ["adamweightdecay", slow("momentum"), slow("sgd")])
def test_only_the_named_layer_decays_otherwise(kind):
    before, common = step(kind, {})
    _, own = step(kind, {"conv1$": OWN})
    for path, old in before.items():
        # Each rule is linear in the decay in its first step.
        moved = RATE * (OWN - COMMON) * old if path.startswith("conv1/") else 0.0
        np.testing.assert_allclose(own[path], common[path] - moved, atol=1e-6)
    assert np.abs(before["conv1/bias"]).min() == 1.0


def test_the_last_name_counts_and_spared_weights_stay_spared():
    _, own = step("momentum", {"conv1$": OWN}, spared=["bias"])
    before, all_of = step("momentum", {"conv": COMMON, "conv1$": OWN}, spared=["bias"])
    _, none = step("momentum", {"conv": COMMON}, spared=["bias"])
    for path in before:
        np.testing.assert_allclose(all_of[path], own[path], atol=1e-7)
    np.testing.assert_allclose(own["conv1/bias"], none["conv1/bias"], atol=1e-7)


def test_names_that_are_none_are_refused():
    with pytest.raises(ValueError, match="'conv2'.* 3 such layers, .* conv1"):
        step("momentum", {"conv2": OWN})
    settings = cli.parse(["--weight_decay_on=conv1:1e-4,stage4:0"])
    decays = settings.optimizer.parsed("weight_decay_on")
    assert decays == {"conv1": 1e-4, "stage4": 0.0}


@pytest.mark.parametrize("kind", [plsc_tf.ShardedHead, slow(plsc_tf.DenseHead)])
def test_a_rate_of_nothing_keeps_weights_whatever_the_rule(kind):
    def ftrl():
        return keras.optimizers.Ftrl(0.1)  # divides by its rate

    model = checkpointed.build(1, optimizer=ftrl, kind=kind)
    rule, factors = WeightRule(rate_factor=0.0), {"dense": 0.0}
    model.compile(model.optimizer, head_rule=rule, rate_factors=factors)
    dense = model.backbone.layers[-1]
    weights = [*dense.get_weights(), model.head.weights_as_numpy()]
    checkpointed.fit(model, epochs=1)
    assert model.trainer.position.global_step == 4
    found = [*dense.get_weights(), model.head.weights_as_numpy()]
    np.testing.assert_equal(found, weights)
