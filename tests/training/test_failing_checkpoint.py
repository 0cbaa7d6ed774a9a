"""Saves that fail, and checkpoints that are damaged."""

import threading
import time

import pytest

import plsc_tf
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.storage import files
from tests.training.checkpointed import Watch, data, fit, names


def failing_at(step):
    """A `files.write` that fails while the checkpoint of a step is written."""
    write = files.write

    def function(path, *args, **options):
        if f"step_{step:08d}" in path:
            raise OSError(28, "No space left on device", path)
        return write(path, *args, **options)

    return function


def settled(step):
    """Waits until no save is in flight, so that its error is there."""
    while any("plsc_tf-save" in thread.name for thread in threading.enumerate()):
        time.sleep(0.001)


def lenient(folder, **options):
    """A `Checkpoint` of some steps, without which the training goes on."""
    options = {"every_n_steps": 1, "every_n_epochs": 0, **options}
    return plsc_tf.Checkpoint(folder, on_error="continue", **options)


@pytest.mark.parametrize(("background", "stops_at"), [(True, 3), (False, 2)])
def test_an_error_stops_the_training_at_the_next_step(
    model, tmp_path, monkeypatch, background, stops_at
):
    monkeypatch.setattr(files, "write", failing_at(2))
    checkpoint = plsc_tf.Checkpoint(tmp_path, every_n_steps=1, background=background)
    with pytest.raises(OSError, match="Older checkpoints are unchanged") as caught:
        fit(model, checkpoint, Watch(settled))
    assert caught.value.errno == 28 and str(tmp_path) in str(caught.value)
    assert model.trainer.position.global_step == stops_at
    assert names(tmp_path) == ["step_00000001"]
    # It was raised once; the steps that are done can still be saved.
    checkpoint.save("step_00000009")
    checkpoint.wait()
    assert names(tmp_path) == ["step_00000001", "step_00000009"]


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_training_goes_on_without_a_checkpoint_where_that_is_asked_for(
    model, tmp_path, monkeypatch, caplog, background, waits
):
    """Also when the error comes to light only as the next save begins."""
    monkeypatch.setattr(files, "write", failing_at(2))
    checkpoint = lenient(tmp_path, background=background)
    fit(model, checkpoint, *([Watch(settled)] if waits else []), epochs=1)
    assert names(tmp_path) == ["step_00000001", "step_00000003", "step_00000004"]
    assert "Training continues without it" in caplog.text


def test_the_last_step_is_saved_again_when_saving_failed(model, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "write", failing_at(4))
    checkpoint = lenient(tmp_path, every_n_steps=4)

    def repair(step):
        if step == 4:
            settled(step)
            monkeypatch.undo()

    fit(model, checkpoint, Watch(repair), epochs=1)
    assert names(tmp_path) == ["step_00000004"]


def test_a_save_that_is_interrupted_is_made_again(model, tmp_path, monkeypatch):
    """Ctrl-C while training waits for the files."""

    def interrupted(path, *args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write", interrupted)
    checkpoint = plsc_tf.Checkpoint(tmp_path, every_n_steps=2, background=False)
    with pytest.raises(KeyboardInterrupt):
        fit(model, checkpoint)
    assert names(tmp_path) == []
    monkeypatch.undo()
    checkpoint.save("step_00000002")
    assert names(tmp_path) == ["step_00000002"]


def test_a_damaged_one_stops_or_is_passed_over_as_asked(model, tmp_path):
    """What a damaged one leaves alone is seen in `tests/checkpoints/test_damage.py`."""
    fit(model, plsc_tf.Checkpoint(tmp_path))
    path = tmp_path / "1" / "backbone.weights.h5"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedCheckpointError, match=r"backbone\.weights\.h5 has"):
        plsc_tf.Checkpoint(tmp_path).restore(model)
    checkpoint = plsc_tf.Checkpoint(tmp_path, on_damaged="previous")
    start = checkpoint.restore(model)
    assert start == {"initial_epoch": 1, "initial_step": 0}
    assert model.trainer.position.global_step == 4
    model.fit(data(), epochs=2, verbose=0, callbacks=[checkpoint], **start)
    assert names(tmp_path) == ["0", "1", "1.damaged-1"]
