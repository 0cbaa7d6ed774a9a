"""Two trainings in one folder: one ends at once, and the other loses nothing."""

import shutil

import pytest

import plsc_tf
from plsc_tf.storage.writer_lock import FolderInUseError
from tests.training.checkpointed import Watch, build, fit, names, resume

# The callback in Python


@pytest.fixture(scope="module")
def models():
    return build(1), build(1)


def test_a_callback_has_the_directory_from_begin_to_end_of_fit(models, tmp_path):
    model, other = models
    seen = []

    def second(step):
        if step == 5:
            with pytest.raises(FolderInUseError, match="is in use") as caught:
                fit(other, plsc_tf.Checkpoint(tmp_path))
            seen.append(str(caught.value))
            # It may read, though: to evaluate while the first trains.
            plsc_tf.Checkpoint(tmp_path).restore(other)
            seen.append(other.trainer.position.global_step)

    fit(model, plsc_tf.Checkpoint(tmp_path, background=False), Watch(second))
    assert seen[0].endswith("Wait until it ends, or set another directory.")
    assert seen[1] == 4
    assert names(tmp_path) == ["0", "1"]
    resume(other, plsc_tf.Checkpoint(tmp_path), epochs=3)
    assert names(tmp_path) == ["0", "1", "2"]


def test_a_fit_that_fails_gives_the_directory_up(models, tmp_path):
    """Ctrl-C in a notebook, and on with a new callback in the same kernel."""

    def interrupted(step):
        if step == 3:
            raise KeyboardInterrupt

    checkpoint = plsc_tf.Checkpoint(tmp_path, every_n_steps=2)
    with pytest.raises(KeyboardInterrupt):
        fit(models[0], checkpoint, Watch(interrupted))
    assert names(tmp_path) == ["step_00000002"]
    checkpoint.save("step_00000003")
    assert names(tmp_path) == ["step_00000002", "step_00000003"]
    resume(models[1], plsc_tf.Checkpoint(tmp_path), epochs=1)
    assert names(tmp_path) == ["0", "step_00000002", "step_00000003"]


def test_checkpoints_of_others_are_not_removed(models, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    fit(models[0], plsc_tf.Checkpoint(theirs, every_n_steps=1), epochs=1)

    def copied(step):
        if step == 4:
            shutil.copytree(theirs / "step_00000001", ours / "step_00000001")

    options = {"every_n_steps": 1, "every_n_epochs": 0, "max_to_keep": 1}
    options["background"] = False
    fit(models[0], Watch(copied), plsc_tf.Checkpoint(ours, **options), epochs=1)
    assert names(ours) == ["step_00000001", "step_00000004"]
    # Those of the run that is resumed are its own.
    resume(models[1], plsc_tf.Checkpoint(ours, **options), epochs=2)
    assert names(ours) == ["step_00000001", "step_00000008"]
