"""Tests that a resume logs changed options and refuses to change a run's meaning."""

import shutil
import sys

import pytest

import plsc_tf
from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs import resume_changes, train as run
from plsc_tf.jobs.builders.data import load_batches
from plsc_tf.jobs.run_plan import choose_folder
from tests.jobs.tiny_run import on_one_replica as settings
from tests.seeds.commands import class_folders
from tests.training.checkpointed import build, data, fit


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of one epoch."""
    folder = tmp_path_factory.mktemp("run") / "a"
    run.train(settings(folder, num_epochs=1))
    return folder


def resume(asked):
    """Returns the options that a resume changes, without training."""
    asked, checkpoint = choose_folder(asked, 1)
    batches = load_batches(asked, asked.training.global_batch_size)
    origin = resume_changes.of_run(asked, checkpoint, batches, 1, 1)
    return origin["starts"][-1]["changed"]


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"loss_type": "dist_cosface"}, "dist_arcface", "dist_cosface"),
        ({"margin": 0.3}, "None (the loss's own)", "0.3"),
        ({"scale": 32.0}, "64.0", "32.0"),
        ({"preprocessing_name": "inception"}, "face", "inception"),
        ({"image_shape": (3, 24, 24)}, "3,16,16", "3,24,24"),
        ({"labels_offset": 1}, "0", "1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_meaning_is_refused(finished, changes, old, new):
    [name] = changes
    with pytest.raises(ValueError) as caught:
        run.train(settings(finished, num_epochs=2, **changes))
    said = str(caught.value)
    assert f"was trained with {name}={old}. Received: {name}={new}." in said
    assert f"--checkpoint_dir={finished}/0 --model_save_dir=" in said
    assert said.endswith(f"allow the change: --allow_changes={name}.")
    assert [path for _, path in catalog.find_all(str(finished))] == [f"{finished}/0"]


PHOTOS = {"dataset_name": "folder", "dataset_dir": "photos"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (PHOTOS, "with dataset_name=mock. Received: .*=folder"),
        ({"num_sample_per_epoch": 50}, "data=42 images.*Received: data=50 images"),
        ({"num_classes": 8}, "42 images of 7 classes .*Received: data=42 images of 8 "),
        ({"optimizer": "adam"}, "optimizer Momentum. Received: optimizer=Adam"),
        ({"emb_size": 16}, "does not fit this model"),
        ({"global_batch_size": 20}, "global_batch_size=10, which a resume keeps"),
        ({"allow_changes": ("los_type",)}, "allow_changes: .*'los_type'.*'loss_type'"),
    ],
)
def test_another_training_does_not_resume(finished, changes, message):
    with pytest.raises(ValueError, match=message):
        run.train(settings(finished, num_epochs=2, **changes))


def test_what_is_the_same_in_other_words_is_accepted(finished):
    # 0.5 is ArcFace's own margin, and ArcFace has no margin3.
    same = {"margin": 0.5, "margin3": 0.0}
    _, checkpoint = choose_folder(settings(finished, **same), 1)
    assert checkpoint == f"{finished}/0"


def test_changes_are_logged_and_kept(finished, tmp_path, caplog):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    changed = {
        "num_epochs": 2,
        "learning_rate": 0.1,
        "random_flip": False,
        "loss_type": "dist_cosface",
        "margin3": 0.2,
        "num_sample_per_epoch": 50,
        "log_loss_every_n_iters": 3,
        "prefetch_buffer_size": 4,
        "head_initializer": "he_normal",
        "run_report": True,
    }
    allowed = {"allow_changes": ("loss_type", "margin3", "dataset_dir")}
    run.train(settings(folder, **changed, **allowed))
    lines = [one for one in caplog.messages if one.startswith("changed: ")]
    expected = {
        "num_epochs": ["1", "2"],
        "learning_rate": ["0.05", "0.1"],
        "random_flip": ["None", "false"],
        "loss_type": ["dist_arcface", "dist_cosface"],
        "margin3": ["None (the loss's own)", "0.2"],
        "num_sample_per_epoch": ["42", "50"],
    }
    starts = manifest.read(str(folder / "1"))["state"]["starts"]
    before, now = starts[1]["changed"]["data"]
    assert "42 images" in before and "50 images" in now
    expected["data"] = [before, now]
    told = [f"changed: {name} {old} -> {new}" for name, (old, new) in expected.items()]
    assert sorted(lines) == sorted(told)
    assert [one.get("changed") for one in starts] == [None, expected]
    assert [one["step"] for one in starts] == [0, 5]
    assert "learning_rate 0.05 -&gt; 0.1" in (folder / "report.html").read_text()
    # The run now has these options, so repeating them changes nothing.
    assert resume(settings(folder, **changed)) == {}


def test_data_may_move_but_not_change(tmp_path):
    class_folders(tmp_path / "here", classes=2, images=3)

    def asked(place):
        options = {"dataset_name": "folder", "dataset_dir": str(tmp_path / place)}
        options |= {"num_classes": 2, "batch_size": 2, "num_epochs": 1}
        return settings(tmp_path / "run", **options)

    run.train(asked("here"))
    there = (tmp_path / "here").rename(tmp_path / "there")
    another = shutil.copy(there / "class_0/0.jpg", there / "class_0/9.jpg")
    with pytest.raises(ValueError, match="data=6 images.*Received: data=7 images"):
        resume(asked("there"))
    another.unlink()
    assert resume(asked("there")) == {}


def test_labels_from_before_an_edit_are_refused(finished):
    asked, checkpoint = choose_folder(settings(finished), 1)
    stored = manifest.read(checkpoint)["state"]
    data = stored.pop("data")
    stored["class_edits"] = data["contents"]
    with pytest.raises(ValueError, match="data=the new labels of edited classes"):
        resume_changes.find(checkpoint, stored, asked, data)
    other = {**data, "contents": "other"}
    assert "data" not in resume_changes.find(checkpoint, stored, asked, other)


# Whoever continues a stranger's run would otherwise run any code that Python finds.
@pytest.mark.parametrize("name", ["dataset_name", "loss_type"])
def test_a_resume_runs_no_code_of_a_checkpoint(finished, name):
    asked, checkpoint = choose_folder(settings(finished, preprocessing_name="face"), 1)
    stored = manifest.read(checkpoint)["state"]
    stored["flags"] |= {"preprocessing_name": None, name: "this.Loss"}
    with pytest.raises(ValueError, match=f"with .*{name}=this.Loss"):
        resume_changes.find(checkpoint, stored, asked)
    assert "this" not in sys.modules


def test_restore_compares_the_loss(tmp_path):
    model = build(1)
    fit(model, plsc_tf.Checkpoint(tmp_path), epochs=1)
    changed = build(1, loss=plsc_tf.COSFACE)
    with pytest.raises(ValueError, match=r"loss=.*'m3': 0\.0.*Received.*'m3': 0\.35"):
        plsc_tf.Checkpoint(tmp_path).restore(changed)
    assert changed.trainer.position.global_step == 0
    checkpoint = plsc_tf.Checkpoint(tmp_path)
    start = checkpoint.restore(changed, allow_changes=True)
    assert start == {"initial_epoch": 1, "initial_step": 0}
    changed.head.scale = 16.0
    changed.fit(data(), epochs=2, verbose=0, callbacks=[checkpoint], **start)
    model.head.scale = 8.0
    with pytest.raises(ValueError, match=r"scale=16\.0.*allow_changes=True\)"):
        plsc_tf.Checkpoint(tmp_path).restore(model)


def test_restore_takes_any_scale_for_plain_softmax(tmp_path):
    model = build(1, loss=plsc_tf.SOFTMAX)
    fit(model, plsc_tf.Checkpoint(tmp_path), epochs=1)
    model.head.scale = 64.0
    start = plsc_tf.Checkpoint(tmp_path).restore(model)
    assert start == {"initial_epoch": 1, "initial_step": 0}
