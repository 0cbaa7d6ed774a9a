"""A small model, its snapshots, and their projection."""

import functools

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.backbones import precision
from plsc_tf.boost import projection, snapshots, trajectory
from plsc_tf.boost.reduced_step import ReducedStepper, ReducedUpdater, ReductionPlan
from plsc_tf.flags.boost import Boost
from plsc_tf.training import state
from tests.networks import convolved

COMPONENTS = 5
EPOCHS = 9


def make_network(dropout, dtype):
    """16 × 16 pictures to embeddings of 8, alike on any number of replicas."""
    layers = keras.layers.BatchNormalization(synchronized=True), keras.layers.ReLU()
    network = convolved((16, 16, 3), 8, *layers, dropout=dropout, seed=1)
    return precision.apply(network, precision.Precision(dtype))


@pytest.fixture(scope="session")
def make_model():
    """A classifier of 7 classes on so many replicas, compiled where a rate is given."""

    def make(
        replicas=1, head=plsc_tf.ShardedHead, dropout=0.0, rate=None, dtype="float32"
    ):
        keras.utils.set_random_seed(0)
        with plsc_tf.strategy(replicas).scope():
            network = make_network(dropout, dtype)
            model = plsc_tf.Classifier(network, head(7, scale=16.0))
            if rate:
                model.compile(plsc_tf.Momentum(rate))
        return model

    return make


@pytest.fixture(scope="session")
def pictures():
    """uint8 `[24, 16, 16, 3]` noise and labels of seven classes."""
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3)).astype(np.uint8)
    return images, np.arange(24) % 7


@pytest.fixture(scope="session")
def folder(make_model, pictures, tmp_path_factory):
    """Nine snapshots, with class weights, of a training run on one replica."""
    path = tmp_path_factory.mktemp("snapshots")
    model = make_model(rate=0.02)
    keep = snapshots.Snapshots(path, every_n_steps=1, scope="all", background=False)
    model.fit(*pictures, batch_size=24, epochs=EPOCHS, callbacks=[keep], shuffle=False)
    return str(path)


@pytest.fixture(scope="session")
def projections(make_model, folder, tmp_path_factory):
    """`{scope: path of the projection}`."""
    made = {}
    for scope in ("backbone", "all"):
        path = str(tmp_path_factory.mktemp("pca") / f"{scope}.npy")
        whole = trajectory.layout_of(make_model(), scope)
        found = trajectory.open_folder(folder, whole, COMPONENTS)
        projection.make(path, found, whole, COMPONENTS)
        made[scope] = path
    return made


@pytest.fixture(scope="session")
def reduce(make_model, projections, folder):
    """Makes a stage 2 that starts at the last snapshot: (model, `ReducedStepper`)."""

    def prepare(replicas=1, scope="backbone", *, alpha=0.001, compiled=None, **options):
        model = make_model(replicas, **options)
        made = ReductionPlan(
            projection=projections[scope],
            layout=trajectory.layout_of(model, scope),
            options=Boost(dim_reduce_alpha=alpha, line_search_trials=8),
        )
        model.trainer.updater_class = functools.partial(ReducedUpdater, plan=made)
        with model.strategy.scope():
            compiled = {k: make() for k, make in (compiled or {}).items()}
            model.compile(plsc_tf.Momentum(0.02), **compiled)
        steps = ReducedStepper(model, made)
        model.trainer.custom_step = steps.step
        state.restore_weights(f"{folder}/step_{EPOCHS:08d}", model)
        return model, steps

    return prepare
