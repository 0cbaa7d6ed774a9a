"""The callback that saves: when, what of, where to, and what a resume makes of it."""

import threading

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.storage import files
from plsc_tf.training import state
from tests.training import checkpointed
from tests.training.checkpointed import data, fit, snapshot

# When and how many


@pytest.mark.parametrize(
    ("options", "epochs", "expected"),
    [
        ({}, 2, ["0", "1"]),
        ({"max_to_keep": 2}, 4, ["2", "3"]),
        ({"max_to_keep": 0}, 7, ["0", "1", "2", "3", "4", "5", "6"]),
        ({"max_to_keep": -1}, 2, ["0", "1"]),  # Lightning's number for all
        ({"every_n_epochs": 2}, 3, ["1", "step_00000012"]),
        ({"every_n_epochs": 0}, 2, ["step_00000008"]),
        ({"every_n_epochs": 0, "every_n_steps": 3}, 2, [3, 6, 8]),
        ({"every_n_steps": 4}, 2, ["0", "1", 4, 8]),  # 4 and 8 end an epoch
        ({"every_n_steps": 3, "max_to_keep": 2}, 2, ["1", 6]),
    ],
)
def test_which_checkpoints_there_are(model, tmp_path, options, epochs, expected):
    fit(model, plsc_tf.Checkpoint(tmp_path, **options), epochs=epochs)
    expected = [n if isinstance(n, str) else f"step_{n:08d}" for n in expected]
    assert checkpointed.names(tmp_path) == sorted(expected)


# What of


def statistics(model):
    """The moving statistics of the batch norm, each of every replica."""
    variables = state.statistics(model)
    return [[c.numpy() for c in state.copies(model, v)] for v in variables]


@pytest.mark.parametrize("background", [True, False])
def test_saving_changes_nothing_in_the_model(model, tmp_path, background):
    model.train_on_batch(*next(iter(data())))
    before = snapshot(model)
    assert any(np.any(one != other) for one, other in statistics(model))
    checkpoint = plsc_tf.Checkpoint(tmp_path, background=background)
    checkpoint.set_model(model)
    checkpoint.save("step_00000001")
    checkpoint.wait()
    np.testing.assert_equal(snapshot(model), before)


def test_statistics_of_batch_norm_on_as_many_replicas_and_on_others(model, tmp_path):
    model.train_on_batch(*next(iter(data())))
    own = statistics(model)
    state.save(str(tmp_path / "a"), model, {})

    def restored(replicas):
        other = checkpointed.build(replicas)
        state.restore(str(tmp_path / "a"), other)
        return statistics(other)

    np.testing.assert_array_equal(restored(2), own)
    for replicas in (1, 3):
        for (first, second), found in zip(own, restored(replicas), strict=True):
            # float32: their mean rounds once.
            mean = (first.astype(np.float64) + second) / 2
            assert len(found) == replicas
            np.testing.assert_allclose(found, [mean] * replicas, rtol=1e-7)


def test_plain_keras_loads_the_embedding_network(model, tmp_path):
    images = next(iter(data()))[0].numpy()
    model.train_on_batch(*next(iter(data())))
    state.save(str(tmp_path / "a"), model, {})
    plain = checkpointed.network()
    plain.load_weights(tmp_path / "a" / "backbone.weights.h5")
    found = plain.predict((images.astype(np.float32) - 127.5) / 128, verbose=0)
    np.testing.assert_allclose(found, model.embed(images), rtol=1e-4, atol=1e-5)


def test_the_content_is_of_the_call_while_training_runs(model, tmp_path, monkeypatch):
    goes_on, write, seen = threading.Event(), files.write, {}

    def slow(path, *args, **options):
        assert goes_on.is_set() or "step_00000006" not in path  # one at a time
        goes_on.wait()
        return write(path, *args, **options)

    def watch(step):
        seen[step] = snapshot(model)
        if step == 6:  # three steps after the save began
            assert checkpointed.names(tmp_path) != ["step_00000003"]
            threading.Timer(0.1, goes_on.set).start()

    monkeypatch.setattr(files, "write", slow)
    checkpoint = plsc_tf.Checkpoint(tmp_path, every_n_steps=3, every_n_epochs=0)
    # Before the callback: at step 6 the next save waits for the one in flight.
    fit(model, checkpointed.Watch(watch), checkpoint, stop_at_step=6)
    assert checkpointed.names(tmp_path) == ["step_00000003", "step_00000006"]
    state.restore(str(tmp_path / "step_00000003"), model)
    np.testing.assert_equal(snapshot(model), seen[3])
    assert np.any(seen[3]["weight"] != seen[6]["weight"])


# What a resume makes of it


def test_an_empty_directory_is_where_a_run_begins(model, tmp_path):
    model.trainer.position.epoch, model.trainer.position.step = 0, 0
    checkpoint = plsc_tf.Checkpoint(tmp_path / "new")
    assert checkpoint.restore(model) == {"initial_epoch": 0, "initial_step": 0}


def test_a_directory_of_another_training_is_refused(model, tmp_path):
    own = plsc_tf.Checkpoint(str(tmp_path))
    fit(model, own)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="checkpoints of another run"):
        fit(model, plsc_tf.Checkpoint(str(tmp_path)))
    # A second `fit` that starts at epoch 0 would fail at the end of this epoch.
    with pytest.raises(ValueError, match="or later epochs"):
        fit(model, own)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_whose_links_lead_out_is_not_continued(model, tmp_path):
    # A stranger's run could have files written anywhere, as by `Sentinel`.
    (tmp_path / "run").mkdir()
    (tmp_path / "run/nonfinite").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="must not lead out of"):
        fit(model, plsc_tf.Checkpoint(tmp_path / "run"))


def test_an_end_of_an_epoch_that_was_not_told_is_told_with_its_figures(model, tmp_path):
    """The run dies between the checkpoint of an epoch's last step and its end."""

    def dies(epoch, logs):
        expected.update(logs)
        raise KeyboardInterrupt

    expected, told = {}, []
    died = keras.callbacks.LambdaCallback(on_epoch_end=dies)
    saver = plsc_tf.Checkpoint(str(tmp_path), every_n_steps=1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(data(), epochs=2, verbose=0, callbacks=[died, saver])
    saver.wait()
    again = plsc_tf.Checkpoint(str(tmp_path))
    start = again.restore(model)
    assert start["initial_epoch"] == 0 and start["initial_step"] > 1
    listener = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: told.append((epoch, dict(logs)))
    )
    # Keras's progress bar would fail at the end of an epoch that did not begin.
    model.fit(data(), epochs=1, verbose=1, callbacks=[listener, again], **start)
    assert told == [(0, expected)] and "loss" in expected


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"classes": 6}, r"weight: \[5, 6\] in the checkpoint, \[6, 6\] here"),
        ({"classes": 4}, r"weight: \[5, 6\] in the checkpoint, \[4, 6\] here"),
        ({"size": 4}, r"\[5, 6\] in the checkpoint, \[5, 4\] here"),
        ({"units": 8}, r"conv2d.*kernel: \[3, 3, 3, 7\] in the checkpoint"),
        (
            {"optimizer": lambda: keras.optimizers.Adam(0.1)},
            "optimizer Momentum. Received: optimizer=Adam.*load_model.*checkpoint_dir",
        ),
    ],
)
def test_another_model_is_refused_and_stays_as_it_is(model, tmp_path, other, complaint):
    state.save(str(tmp_path / "step_00000000"), model, {"global_step": 0})
    fresh = checkpointed.build(2, **other)
    before = snapshot(fresh)
    with pytest.raises(ValueError, match=complaint):
        state.restore(str(tmp_path / "step_00000000"), fresh)
    np.testing.assert_equal(snapshot(fresh), before)
    assert fresh.trainer.position.global_step == 0


def test_a_head_that_is_whole_on_every_replica(model, tmp_path):
    dense = checkpointed.build(2, kind=plsc_tf.DenseHead)
    velocity = dense.optimizer.variables[-1]
    assert velocity.shape == (5, 6)  # that of the class weights
    velocity.assign(np.full((5, 6), 0.25))
    path = str(tmp_path / "a")
    state.save(path, dense, {})
    other = checkpointed.build(3, kind=plsc_tf.DenseHead, seed=1)
    state.restore(path, other)
    found, expected = (m.head.weights_as_numpy() for m in (other, dense))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(other.optimizer.variables[-1].numpy(), velocity)
    # Its optimizer's state is in another place than that of shards.
    before = snapshot(model)
    with pytest.raises(ValueError, match="weight/velocity: not in the checkpoint"):
        state.restore(path, model)
    np.testing.assert_equal(snapshot(model), before)
    np.testing.assert_array_equal(checkpointed.head_of(model, path), expected)


# Otherwise, it is saved, but every resume refuses it.
def test_what_no_one_could_read_is_not_saved(model, tmp_path):
    noise = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(psnr=np.inf)
    )
    fit(model, noise, plsc_tf.Checkpoint(tmp_path / "a"), epochs=1)
    assert manifest.read(str(tmp_path / "a" / "0"))["state"]["logs"]["psnr"] == np.inf
    named = plsc_tf.Checkpoint(tmp_path / "b", extra={"data": "faces"})
    with pytest.raises(ValueError, match=r"state\.data must be an object"):
        fit(model, named, epochs=1)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("name", ["on_error", "on_damaged"])
def test_wrong_options_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} must be one of stop.*'ask'"):
        plsc_tf.Checkpoint(tmp_path, **{name: "ask"})
