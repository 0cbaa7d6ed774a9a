"""Compiled by XLA, in blocks or with substitutes, networks train as with Keras."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf import backbones
from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.precision import Precision
from plsc_tf.backbones.vit import vit
from plsc_tf.jobs.builders import recipe
from plsc_tf.training import batching, replica_step
from tests.conformance.test_zoo import SIZES, settings_of
from tests.marks import slow
from tests.networks import compiled

COMPILED, BLOCKS = {"jit_compile": True}, {"recompute": "blocks"}


class Unknown(keras.layers.Layer):
    """An operation that XLA does not have."""

    def call(self, inputs):
        return tf.nn.fractional_max_pool(inputs, [1, 1.5, 1.5, 1], seed=1)[0]


def iresnet(**options):
    small = {"depths": (1, 1), "width": 4, "image_shape": (16, 16, 3), "dropout": 0.4}
    return backbones.build("iresnet", embedding_size=6, **{**small, **options})


def small_vit():
    """Half of the examples skip the second block."""
    image = keras.Input((18, 18, 3))
    arguments = NetworkArguments("vit", 6, (18, 18, 3), None)
    return keras.Model(image, vit(16, 2, image, arguments, drop_path=0.5))


def penalized():
    """A penalty on a weight and one on what a layer returns, and a nested model."""
    inner = keras.Sequential(
        [
            keras.Input((14, 14, 4)),
            keras.layers.BatchNormalization(scale=False),
            keras.layers.PReLU(keras.initializers.Constant(0.3), shared_axes=[1, 2, 3]),
        ]
    )
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Conv2D(4, 3, kernel_regularizer=keras.regularizers.L2(0.1)),
            inner,
            keras.layers.Flatten(),
            keras.layers.Dense(6, activity_regularizer=keras.regularizers.L2(0.01)),
        ]
    )


def normalized(synchronized=True):
    norm = functools.partial(keras.layers.BatchNormalization, synchronized=synchronized)
    layers = [keras.layers.Conv2D(4, 3), norm(), keras.layers.Flatten()]
    layers += [keras.layers.Dense(6), norm(scale=False)]
    return keras.Sequential([keras.Input((8, 8, 3)), *layers])


def unknown():
    layers = [Unknown(), keras.layers.Flatten(), keras.layers.Dense(4)]
    return keras.Sequential([keras.Input((8, 8, 3)), *layers], name="pooled")


def pictures(shape, count=8):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *shape[:2], 3)).astype(np.float32)
    return images, np.arange(count) % 3


def make_model(build, replicas=1, **options):
    head = plsc_tf.ShardedHead(5, scale=16.0)
    return compiled(build, head, replicas, lambda: plsc_tf.Momentum(0.005), **options)


def passes(model, images, labels):
    """Each replica's gradients, and the statistics and random states after the step."""
    values = images, labels, np.ones(len(images), np.float32)
    batch = batching.split(model.strategy, tuple(map(tf.convert_to_tensor, values)))

    @tf.function(autograph=False)
    def run(batch):
        def replica(*batch):
            gradients = replica_step.gradients(model, *batch).gradients
            states = [tf.identity(v.value) for v in model.untrained_variables()]
            return gradients, states

        return model.strategy.run(replica, args=batch)

    local = model.strategy.experimental_local_results
    return tf.nest.map_structure(lambda v: [x.numpy() for x in local(v)], run(batch))


def flat(arrays, floats=True):
    chosen = [x for x in tf.nest.flatten(arrays) if (x.dtype.kind == "f") == floats]
    return np.concatenate([np.ravel(x) for x in chosen] or [np.zeros(0)])


def assert_same_passes(model, *ways, reference=None, sent=None):
    """Compares the passes of one step with those of Keras's layers, or `reference`.

    Blocks run Keras's kernels again; XLA has its own ones. The list `sent` keeps what
    the last passes add to it.
    """
    images, labels = pictures(model.image_size)
    variables, outcomes = model.untrained_variables(), []
    before = [v.numpy() for v in variables]
    for options in (reference or {}, *ways):
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        if sent is not None:
            sent.clear()
        with model.strategy.scope():
            model.compile(plsc_tf.Momentum(0.05), **options)
        if not outcomes and not reference:
            model.trainer.forward = None
        outcomes.append(passes(model, images, labels))
    plain = outcomes[0]
    for options, outcome in zip(ways, outcomes[1:], strict=True):
        most = 1e-6 if options == BLOCKS else 1e-5
        for expected, found in zip(plain, outcome, strict=True):
            expected, found = flat(expected), flat(found)
            assert np.linalg.norm(found - expected) <= most * np.linalg.norm(expected)
        random = [flat(states, floats=False) for _, states in (outcome, plain)]
        np.testing.assert_array_equal(*random)


# XLA has its own dropout masks, which are the same when a block runs again.
@pytest.mark.parametrize(
    ("build", "way", "reference"),
    [
        (functools.partial(iresnet, depths=(1,), dropout=0), COMPILED, None),
        (functools.partial(iresnet, depths=(1,)), BLOCKS, None),
        (small_vit, COMPILED | BLOCKS, COMPILED),
    ],
    ids=["compiled", "blocks", "both"],
)
def test_gradients_and_states_are_the_same(build, way, reference):
    assert_same_passes(make_model(build), way, reference=reference)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.usefixtures("float64")
def test_every_network(name, replicas):
    # In float32, small pictures magnify rounding: norms over a few numbers.
    # XLA draws other masks.
    options = {"model_options": "drop_path=0"} if name == "vit_t" else {}
    settings = settings_of(name, dropout=0.0, **options)
    model = recipe.build_model(settings, plsc_tf.strategy(replicas), Precision())
    assert_same_passes(model, BLOCKS, COMPILED)


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_penalties_parts_and_twenty_steps(replicas):
    losses = []
    for options in ({"jit_compile": False}, COMPILED):
        options = {"gradient_accumulation_steps": 2, **options}
        model = make_model(penalized, replicas, **options)
        images, labels = pictures((16, 16))
        results = [model.train_on_batch(images, labels) for _ in range(20)]
        losses.append([one["loss"] for one in results])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_synchronized_norms_equal_keras_and_send_one_message_each_way(monkeypatch):
    sent, all_reduce = [], tf.distribute.ReplicaContext.all_reduce

    def counted(self, *arguments, **options):
        sent.append(self)
        return all_reduce(self, *arguments, **options)

    monkeypatch.setattr(tf.distribute.ReplicaContext, "all_reduce", counted)
    passes(make_model(functools.partial(normalized, False), 2), *pictures((8, 8)))
    others = len(sent)
    assert_same_passes(make_model(normalized, 2), {}, sent=sent)
    # Two layers, two replicas.
    assert len(sent) - others == 2 * 2 * 2


def test_what_xla_does_not_know_runs_uncompiled(caplog):
    model, batch = make_model(unknown, **COMPILED), pictures((8, 8))
    loss = model.train_on_batch(*batch)["loss"]
    assert "cannot compile the network 'pooled'" in caplog.text
    assert "FractionalMaxPool" in caplog.text
    assert loss == make_model(unknown, jit_compile=False).train_on_batch(*batch)["loss"]


def test_a_network_without_a_place_to_cut_is_refused():
    one = functools.partial(backbones.build, "lenet", image_shape=(8, 8, 3))
    with pytest.raises(ValueError, match="recompute=blocks.*'wrapped'"):
        wrapped = keras.Sequential([keras.Input((8, 8, 3)), one()], name="wrapped")
        make_model(lambda: wrapped, **BLOCKS)
    with pytest.raises(ValueError, match="jit_compile must be one of True"):
        make_model(one, jit_compile="on")
