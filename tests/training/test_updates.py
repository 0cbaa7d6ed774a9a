"""An optimizer means for class shards what Keras means by it."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.jobs.builders import optimizers
from plsc_tf.options.settings import Settings, known_options
from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import ShardedRows
from plsc_tf.training.updates import Updater
from plsc_tf.training.weight_rules import WeightRule
from tests.marks import slow

ROWS, STEPS = 7, 3
assert_close = functools.partial(np.testing.assert_allclose, rtol=2e-6, atol=1e-6)
SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
OPTIMIZERS = {
    "momentum": lambda: plsc_tf.Momentum(SCHEDULE, l2=0.01),
    "sgd_decay": lambda: keras.optimizers.SGD(SCHEDULE, 0.9, weight_decay=0.1),
    "sgd_nesterov": lambda: keras.optimizers.SGD(0.1, 0.9, nesterov=True),
    "sgd_clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.5),
    "sgd_global_clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.7),
    "sgd_clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.3),
    "adam": lambda: keras.optimizers.Adam(SCHEDULE),
    "adam_amsgrad": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "adamw": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.2),
    "adamax": lambda: keras.optimizers.Adamax(0.1),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.1, momentum=0.9, centered=True),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adadelta": lambda: keras.optimizers.Adadelta(1.0),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "lion": lambda: keras.optimizers.Lion(0.1, weight_decay=0.1),
}
RNG = np.random.default_rng(3)
BACKBONE = RNG.normal(size=(2, 3)).astype(np.float32)
HEAD = RNG.normal(size=(ROWS, 3)).astype(np.float32)
GRADIENTS = [
    (RNG.normal(size=(2, 3)).astype("f4"), RNG.normal(size=(ROWS, 3)).astype("f4"))
    for _ in range(STEPS)
]


def keras_alone(make):
    """What Keras makes of the whole weights on one device."""
    backbone, head = keras.Variable(BACKBONE), keras.Variable(HEAD)
    optimizer = make()
    for gradients in GRADIENTS:
        optimizer.apply([tf.constant(g) for g in gradients], [backbone, head])
    return backbone.numpy(), head.numpy()


class Shards:
    """What the updater needs of a head: gradients that are given."""

    seed = 0

    def __init__(self, rows):
        self.rows = rows
        self.second_pass = self

    def arrays(self):
        return {"weight": self.rows}

    def square_norms(self, pending):
        rows = [tf.reduce_sum(tf.square(tile)) for tile in self.rows.local()]
        gradient = tf.reduce_sum(tf.square(pending["gradient"]))
        return {"weight": gradient, "rows": tf.add_n(rows)}

    def each_tile(self, pending):
        size, tiles = self.rows.tile_rows, self.rows.local()
        starts = [index * size for index in range(len(tiles))]
        own = [pending["gradient"][first : first + size] for first in starts]
        pairs = zip(tiles, own, strict=True)
        each = [({"weight": tile}, None, {"gradient": one}) for tile, one in pairs]
        return each, starts, {"rows": tf.zeros([], tf.int64)}

    def weight_gradients(self, arrays, part):
        return {"weight": (part["gradient"], None)}


def sharded(make, replicas, **options):
    """The same with mirrored and row-split weights; returns them and the flags."""
    strategy = plsc_tf.strategy(replicas)
    with strategy.scope():
        backbone = keras.Variable(BACKBONE, name="kernel")
        optimizer = make()
    rows = ShardedRows(strategy, lambda a, b: HEAD[a:b], ROWS, "w", tile_rows=2)
    updater = Updater(optimizer, strategy, [backbone], Shards(rows), **options)

    @tf.function
    def step(backbone_gradient, head_gradient):
        def replica():
            me = collectives.replica_id()
            share = backbone_gradient / replicas
            first = rows.split.first(me)
            own = head_gradient[first : first + rows.split.size(me)]
            return updater.apply([share], {"gradient": own}, tf.constant(True))[0]

        return strategy.run(replica)

    flags = []
    for gradients in GRADIENTS:
        flag = step(*(tf.constant(g) for g in gradients))
        flags.append([bool(f) for f in strategy.experimental_local_results(flag)])
    copies = strategy.experimental_local_results(backbone.value)
    return [c.numpy() for c in copies], rows.read(0, ROWS), flags, updater


# One optimizer of each kind: the others differ only in Keras's own rule.
FAST_COMPILED = ("momentum", "sgd_global_clipnorm", "ftrl")
FAST = (*FAST_COMPILED, "sgd_decay", "sgd_clipvalue", "adamw")


@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [
        (name, compiled) if name in fast else slow(name, compiled)
        for compiled, fast in ((False, FAST), (True, FAST_COMPILED))
        for name in OPTIMIZERS
    ],
)
def test_equals_keras_on_one_device(name, jit_compile):
    expected_backbone, expected_head = keras_alone(OPTIMIZERS[name])
    backbones, head, flags, _ = sharded(OPTIMIZERS[name], 2, jit_compile=jit_compile)
    assert flags == [[True] * 2] * STEPS
    for backbone in backbones:
        assert_close(backbone, expected_backbone)
    assert_close(head, expected_head)


def replicated(make, replicas, head_rule=None, **options):
    """The same where the head is whole on every replica."""
    strategy = plsc_tf.strategy(replicas)
    with strategy.scope():
        backbone = keras.Variable(BACKBONE, name="kernel")
        head = keras.Variable(HEAD, name="head_weight")
        optimizer = make()
    rules = {id(head): head_rule} if head_rule else {}
    variables = [backbone, head]
    updater = Updater(optimizer, strategy, variables, layer_rules=rules, **options)

    def replica(*gradients):
        shares = [gradient / replicas for gradient in gradients]
        return updater.apply(shares, None, tf.constant(True))[0]

    step = tf.function(lambda *gradients: strategy.run(replica, gradients))
    for gradients in GRADIENTS:
        step(*(tf.constant(g) for g in gradients))
    return backbone.numpy(), head.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Adafactor", "Lamb", "Muon"])
def test_a_compiled_update_of_whole_weights_equals_keras(name):
    make = functools.partial(getattr(keras.optimizers, name), 0.1)
    found = replicated(make, 2, jit_compile=True)
    for weights, expected in zip(found, keras_alone(make), strict=True):
        assert_close(weights, expected)


def l2(rate, decay):
    return plsc_tf.Momentum(rate, 0.0, l2=decay)


# Optimizers with a rate and a decay, which may be a penalty of the updater instead.
WITH_DECAY = {
    "momentum": lambda rate, decay: plsc_tf.Momentum(rate, l2=decay),
    "adamw": lambda rate, decay: keras.optimizers.AdamW(rate, weight_decay=decay),
    "sgd": lambda rate, decay: keras.optimizers.SGD(rate, weight_decay=decay),
    "penalty": l2,
}


@pytest.mark.parametrize("name", WITH_DECAY)
def test_the_head_has_a_rate_and_a_decay_of_its_own(name):
    make, rule = WITH_DECAY[name], WeightRule(rate_factor=10.0, weight_decay=0.3)
    expected_backbone, _ = keras_alone(lambda: make(0.01, 0.02))
    _, expected_head = keras_alone(lambda: make(0.1, 0.3))
    own, options = functools.partial(make, 0.01, 0.02), {"head_rule": rule}
    if make is l2:
        own, options["l2"] = functools.partial(keras.optimizers.SGD, 0.01), 0.02
    for train in sharded, replicated:
        backbones, head, *_ = train(own, 2, **options)
        for backbone in np.reshape(backbones, (-1, 2, 3)):
            assert_close(backbone, expected_backbone)
        assert_close(head, expected_head)


@pytest.mark.parametrize("name", known_options()["optimizer"].choices)
def test_every_optimizer_of_the_options_is_built_from_settings_and_trains(name):
    options = Settings.from_values(optimizer=name, max_gradient_norm=1.0).optimizer
    _, penalty = optimizers.build(options, SCHEDULE)
    make = functools.partial(optimizers.build, options, SCHEDULE)
    backbones, head, flags, _ = sharded(lambda: make()[0], 1, l2=penalty)
    assert flags == [[True]] * STEPS
    for array, before in ((backbones[0], BACKBONE), (head, HEAD)):
        assert np.isfinite(array).all() and (array != before).any()


@pytest.mark.parametrize(
    ("optimizer", "complaint"),
    [
        (lambda: keras.optimizers.Lamb(0.1), "Lamb cannot update"),
        (lambda: keras.optimizers.Nadam(0.1), "Nadam does more"),
        (
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
            "LossScaleOptimizer does more",
        ),
        (lambda: keras.optimizers.SGD(0.1, use_ema=True), "use_ema=True"),
        (
            lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
            "gradient_accumulation_steps=2",
        ),
    ],
)
def test_optimizers_that_would_mean_something_else_are_refused(optimizer, complaint):
    with pytest.raises(ValueError, match=complaint):
        sharded(optimizer, 2)
