"""A layer's own weight decay takes the place of that of all weights."""

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.jobs.builders import optimizers
from plsc_tf.options.settings import Settings
from plsc_tf.training.weight_rules import WeightRule
from tests.marks import slow
from tests.training import checkpointed

RATE, COMMON, OWN = 0.1, 0.02, 0.5
OPTIMIZERS = {
    "momentum": lambda: (plsc_tf.Momentum(RATE, l2=COMMON), 0.0),
    "sgd": lambda: (keras.optimizers.SGD(RATE), COMMON),
    "adamweightdecay": lambda: (keras.optimizers.AdamW(RATE, COMMON, epsilon=1.0), 0.0),
}


def step(make_optimizer, factors=None, spared=()):
    """All weights before and after one step, `{path: array}`."""
    keras.utils.set_random_seed(1)
    with plsc_tf.strategy(num_replicas=1).scope():
        inputs = keras.Input((8, 8, 3))
        x = keras.layers.Conv2D(4, 3, name="conv1", bias_initializer="ones")(inputs)
        x = keras.layers.BatchNormalization(name="norm")(x)
        x = keras.layers.PReLU("ones", shared_axes=[1, 2], name="beta_act")(x)
        x = keras.layers.Conv2D(4, 3, name="conv10")(x)
        x = keras.layers.GlobalAveragePooling2D()(x)
        network = keras.Model(inputs, keras.layers.Dense(6, name="bias_like")(x))
        head = plsc_tf.ShardedHead(num_classes=5, loss=plsc_tf.SOFTMAX)
        model = plsc_tf.Classifier(network, head)
        optimizer, l2 = make_optimizer()
        if spared:
            optimizer.exclude_from_weight_decay(var_names=spared)
    model.compile(optimizer, l2=l2, weight_decay_on=factors or {})
    head.arrays()["bias"].write(0, np.ones(5, np.float32))

    def weights():
        rows = {f"head/{key}": rows.read(0, 5) for key, rows in head.arrays().items()}
        return {one.path: one.numpy() for one in network.trainable_weights} | rows

    before, random = weights(), np.random.default_rng(0)
    model.train_on_batch(random.uniform(0, 255, (4, 8, 8, 3)), [0, 1, 2, 3])
    return before, weights()


@pytest.mark.parametrize("kind", ["adamweightdecay", slow("momentum"), slow("sgd")])
def test_only_the_named_layer_decays_otherwise(kind):
    before, common = step(OPTIMIZERS[kind])
    _, own = step(OPTIMIZERS[kind], {"conv1$": OWN})
    for path, old in before.items():
        # Each rule is linear in the decay in its first step.
        moved = RATE * (OWN - COMMON) * old if path.startswith("conv1/") else 0.0
        np.testing.assert_allclose(own[path], common[path] - moved, atol=1e-6)
    assert np.abs(before["conv1/bias"]).min() == 1.0


def test_the_last_name_counts_and_spared_weights_stay_spared():
    make, spared = OPTIMIZERS["momentum"], ["bias"]
    _, own = step(make, {"conv1$": OWN}, spared)
    before, all_of = step(make, {"conv": COMMON, "conv1$": OWN}, spared)
    _, none = step(make, {"conv": COMMON}, spared)
    for path in before:
        np.testing.assert_allclose(all_of[path], own[path], atol=1e-7)
    np.testing.assert_allclose(own["conv1/bias"], none["conv1/bias"], atol=1e-7)


@pytest.mark.parametrize("name", ["adamweightdecay", slow("momentum"), slow("adam")])
def test_norms_and_biases_may_be_spared_from_the_decay(name):
    spared = {"momentum": 0.0, "no_weight_decay_on": ("norms", "biases")}
    flags = Settings.from_values(optimizer=name, **spared)

    def after(decay):
        options = flags.replace(weight_decay=decay).optimizer
        return step(lambda: optimizers.build(options, RATE))[1]

    without, decayed = after(0.0), after(0.3)
    differ = {k for k in without if not np.array_equal(without[k], decayed[k])}
    kernels = {"conv1/kernel", "conv10/kernel", "bias_like/kernel", "head/weight"}
    assert differ == kernels | {"beta_act/alpha"}


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
