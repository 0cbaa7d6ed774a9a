"""Stage 1 keeps the weights of the right steps, and no more of them than asked for."""

import numpy as np
import pytest

import plsc_tf
from plsc_tf.boost import snapshots, trajectory
from plsc_tf.checkpoints import catalog, manifest
from tests.marks import slow


def train(model, pictures, path, epochs=3, first=0, **options):
    model.trainer.position.global_step = first
    keep = snapshots.Snapshots(path, **options)
    model.fit(*pictures, batch_size=6, epochs=epochs, callbacks=[keep], shuffle=False)
    return [step for step, _ in catalog.find_all(str(path))]


@pytest.fixture(scope="module")
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
        # More than there are steps.
        ({"per_epoch": 5, "start_epoch": 2}, [9, 10, 11, 12]),
    ],
)
def test_the_right_steps_are_kept(model, pictures, tmp_path, options, steps):
    assert train(model, pictures, tmp_path, **options) == steps


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # Four steps to an epoch. Step 1 makes the graph; then calls of two steps end
        # where a snapshot is due: after 3, 6 and 9, or after 2 and 4 of an epoch.
        ({"every_n_steps": 3}, [3, 6, 9, 12]),
        slow({"per_epoch": 2, "start_epoch": 1}, [6, 8, 10, 12]),
    ],
)
def test_several_steps_per_call_end_at_a_snapshot(
    make_model, pictures, tmp_path, options, steps
):
    single, several = make_model(rate=0.01), make_model(rate=0.01)
    assert train(single, pictures, tmp_path / "1", **options) == steps
    with several.strategy.scope():
        several.compile(plsc_tf.Momentum(0.01), steps_per_execution=2)
    assert train(several, pictures, tmp_path / "2", **options) == steps
    whole = trajectory.layout_of(single, "all")
    for step in steps:
        places = [f"{tmp_path}/{n}/step_{step:08d}" for n in (1, 2)]
        found = [trajectory.Snapshot(place, whole) for place in places]
        np.testing.assert_array_equal(*(one.read(0, whole.size) for one in found))


def test_the_numbers_are_those_of_the_weights(model, pictures, tmp_path):
    train(model, pictures, tmp_path, epochs=1, every_n_steps=4, scope="all")
    for scope in ("backbone", "all"):
        whole = trajectory.layout_of(model, scope)
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
        part = found.read(100, whole.size - 3)
        np.testing.assert_array_equal(part, found.read(0, whole.size)[100:-3])


def test_a_large_head_is_left_out_unless_asked(model, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(model.backbone, "count_params", lambda: 10)
    train(model, pictures, tmp_path, epochs=1, every_n_steps=4)
    path = str(tmp_path / "step_00000004")
    assert manifest.read(path)["arrays"] == {}
    with pytest.raises(ValueError, match="no class weights, which dim_reduce_scope"):
        trajectory.Snapshot(path, trajectory.layout_of(model, "all"))


def test_another_trainings_folder_is_refused(model, make_model, pictures, tmp_path):
    train(model, pictures, tmp_path, epochs=1, every_n_steps=2, of_run="one")
    other = make_model(rate=0.01)
    with pytest.raises(ValueError, match="snapshots of another run"):
        train(other, pictures, tmp_path, epochs=1, every_n_steps=2)
    # A resume would remove them, also that of a forged checkpoint that names no run.
    for run in ("other", None):
        with pytest.raises(ValueError, match="snapshots of another run"):
            train(other, pictures, tmp_path, first=2, every_n_steps=2, of_run=run)


def test_a_resume_saves_the_snapshots_of_its_steps_again(model, pictures, tmp_path):
    # Those that are there may be of steps that were given up.
    train(model, pictures, tmp_path, epochs=1, every_n_steps=2)
    before = manifest.read(str(tmp_path / "step_00000004"))["files"]
    train(model, pictures, tmp_path, epochs=1, first=2, every_n_steps=2)
    assert manifest.read(str(tmp_path / "step_00000004"))["files"] != before
