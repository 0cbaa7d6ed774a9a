"""Stage 1 keeps the weights of the right steps, and no more of them than asked for."""

import numpy as np
import pytest

from plsc_tf.boost import layout, snapshots, trajectory
from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.training import state


def train(model, pictures, path, epochs=3, **options):
    keep = snapshots.Snapshots(path, **options)
    model.fit(*pictures, batch_size=6, epochs=epochs, callbacks=[keep], shuffle=False)
    return [step for step, _ in catalog.find_all(str(path))]


@pytest.fixture
def model(make_model):
    return make_model(2, rate=0.01)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # Four steps to an epoch.
        ({"every_n_steps": 5}, [5, 10]),
        ({"per_epoch": 2}, [2, 4, 6, 8, 10, 12]),
        ({"per_epoch": 3, "start_epoch": 2}, [10, 11, 12]),
        ({"every_n_steps": 1, "start_epoch": 1, "max_to_keep": 3}, [10, 11, 12]),
        ({"per_epoch": 4, "max_to_keep": 0, "background": False}, list(range(1, 13))),
    ],
)
def test_the_right_steps_are_kept(model, pictures, tmp_path, options, steps):
    assert train(model, pictures, tmp_path, **options) == steps


def test_the_numbers_are_those_of_the_weights(model, pictures, tmp_path):
    train(model, pictures, tmp_path, epochs=1, every_n_steps=4, scope="all")
    for scope in ("backbone", "all"):
        whole = layout.of_model(model, scope)
        found = trajectory.Snapshot(str(tmp_path / "step_00000004"), whole)
        for piece in whole.pieces:
            if piece.rows:
                expected = model.head.weights_as_numpy()
            else:
                named = {v.path: v for v in model.backbone.trainable_variables}
                expected = named[piece.name].numpy()
            values = found.read(piece.start, piece.stop)
            np.testing.assert_array_equal(values, expected.ravel(), err_msg=piece.name)
        # A range that begins and ends within weights.
        everything = found.read(0, whole.size)
        np.testing.assert_array_equal(
            found.read(100, whole.size - 3), everything[100:-3]
        )


def test_a_training_can_start_from_a_snapshot(model, make_model, pictures, tmp_path):
    train(model, pictures, tmp_path, epochs=1, every_n_steps=4)
    path = str(tmp_path / "step_00000004")
    assert manifest.read(path)["kind"] == "weights"
    other = make_model()
    state.restore_weights(path, other)
    np.testing.assert_array_equal(
        other.head.weights_as_numpy(), model.head.weights_as_numpy()
    )


def test_a_large_head_is_left_out_unless_asked_for(make_model, pictures, tmp_path):
    model = make_model(rate=0.01)
    model.backbone.count_params = lambda: 10
    train(model, pictures, tmp_path, epochs=1, every_n_steps=4)
    path = str(tmp_path / "step_00000004")
    assert manifest.read(path)["arrays"] == {}
    whole = layout.of_model(model, "all")
    with pytest.raises(ValueError, match="no class weights, which dim_reduce_scope"):
        trajectory.Snapshot(path, whole)


def test_another_trainings_folder_is_refused(model, make_model, pictures, tmp_path):
    train(model, pictures, tmp_path, epochs=1, every_n_steps=2)
    other = make_model(rate=0.01)
    with pytest.raises(ValueError, match="snapshots of another training"):
        train(other, pictures, tmp_path, epochs=1, every_n_steps=2)


def test_more_snapshots_than_steps_are_refused(model, pictures, tmp_path):
    with pytest.raises(ValueError, match="An epoch has 4 steps.*per_epoch=5"):
        train(model, pictures, tmp_path, per_epoch=5)
