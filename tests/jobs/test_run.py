"""Tests training, resuming, evaluation and export on small synthetic images."""

import json
import os
import shutil
import sys

import numpy as np
import pytest

from plsc_tf.checkpoints import manifest
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.data.sampling import Order
from plsc_tf.jobs import export, results, run_report, train, trained
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.builders.data import load_batches
from plsc_tf.jobs.run_plan import check_remote, choose_folder
from plsc_tf.options.cli import parse
from plsc_tf.options.settings import Settings
from tests import commands
from tests.checkpoints.small import seal
from tests.classes.tiny import rows_of as stored_rows
from tests.jobs import tiny_run
from tests.jobs.tiny_run import FULL, on_one_replica as settings
from tests.marks import slow
from tests.reporting.conftest import rows_of
from tests.seeds.plsc_folder import make_train_data


@pytest.fixture
def finished(finished_run, tmp_path):
    """The folder and the results of a copy of a finished run."""
    folder = tmp_path / "a"
    shutil.copytree(finished_run.folder, folder)
    return folder, finished_run.outcome


def test_results_say_everything(finished_run):
    folder, outcome = finished_run.folder, finished_run.outcome
    assert json.loads((folder / "results.json").read_text()) == outcome
    assert outcome["steps"] == 10  # 42 images in batches of 10, twice
    assert outcome["loss_type"] == "dist_arcface"
    assert (outcome["num_classes"], outcome["sample_rate"]) == (7, 1.0)
    assert np.isfinite(outcome["loss"]) and outcome["images_per_second"] > 0
    assert set(outcome["verification"]["mock"]) == {"accuracy", "std", "threshold"}
    assert outcome["checkpoint_dir"] == str(folder / "1")
    assert outcome["export_dir"] == str(folder / "export" / "1")
    shown = results.table(settings(folder, **FULL), outcome)
    for words in ("verification accuracy", "±", outcome["export_dir"], "next, try"):
        assert words in shown
    # The suggested next command is one that the run has not already done.
    for changes, exported, following in (
        ({"with_test": True}, "1", f"evaluate --flagfile={folder}/flags.cfg"),
        ({}, "1", f"serve --model_dir={folder}/export"),
        ({}, None, f"export --flagfile={folder}/flags.cfg"),
    ):
        done = {**outcome, "export_dir": exported and str(folder / "export" / exported)}
        table = results.table(settings(folder, **changes), done)
        assert f"python -m plsc_tf.{following}\n" in f"{table}\n"


# An archive of a run could bring links to any folder of the one who continues it.
@pytest.mark.parametrize("name", ["export", "visualdl", "1/x", "mlflow_run_id"])
def test_links_lead_nowhere_out_of_a_run(finished, tmp_path, name):
    folder, _ = finished
    mine = tmp_path / "core-debug-1.log"  # W&B's links lead to files of such names
    mine.mkdir()
    shutil.rmtree(folder / "export")
    (folder / name).symlink_to(mine)
    with pytest.raises(ValueError, match=f"must not lead out of .*links=.*{name}"):
        train.train(settings(folder, num_epochs=3))
    if name == "export":
        for place in "", f"{folder}/export", f"{folder}/export/":
            with pytest.raises(ValueError, match="must not lead out of"):
                export.export_checkpoint(settings(folder, export_dir=place))
    assert not any(mine.iterdir())
    # Others may be useful; and so may a link to the run.
    (folder / name).unlink()
    (folder / name).symlink_to(folder / "1")
    (tmp_path / "latest").symlink_to(folder)
    assert train.train(settings(tmp_path / "latest"))[1]["steps"] == 10


def test_the_same_command_again_keeps_the_results(finished, monkeypatch):
    folder, outcome = finished
    monkeypatch.setattr(run_report, "to_html", failing)
    flags = [f"--flagfile={folder}/flags.cfg", f"--model_save_dir={folder}"]
    _, again = train.train(parse(flags))
    assert again["steps"] == 10 and again["loss"] == outcome["loss"]
    # The run may be a stranger's, and the export that it names any program.
    assert again["export_dir"] == str(folder / "export" / "2")
    assert not (folder / "report.html").exists()
    found, expected = (each["verification"]["mock"] for each in (again, outcome))
    assert found["accuracy"] == pytest.approx(expected["accuracy"])


def failing(*_, **__):
    raise RuntimeError("for a reason")


@pytest.mark.parametrize(
    ("module", "name"), [(results, "test_figures"), slow(export, "export_at_end")]
)
def test_what_fails_behind_a_training_costs_nothing_else(
    tmp_path, monkeypatch, module, name
):
    monkeypatch.setattr(module, name, failing)
    # A stranger's run could have a link of W&B's name to any file.
    (tmp_path / "run/wandb/x/logs").mkdir(parents=True)
    (tmp_path / "run/wandb/x/logs/debug-core.log").symlink_to(tmp_path / "run/private")
    (tmp_path / "run/private").write_text("a key")
    asked = settings(
        tmp_path / "run",
        **FULL,
        num_epochs=1,
        val_targets=("mock", "test"),
        fs_name=f"file://{tmp_path}",
        fs_dir_for_save="kept",
        run_report=True,
    )
    with pytest.raises(RuntimeError, match="for a reason"):
        train.train(asked)
    for folder in ("run", "kept"):
        outcome = json.loads((tmp_path / folder / "results.json").read_text())
        assert outcome["steps"] == 5 and outcome["verification"]["mock"]
        assert (tmp_path / folder / "0").is_dir()
        assert "Results" in (tmp_path / folder / "report.html").read_text()
    assert not (tmp_path / "kept/wandb/x/logs/debug-core.log").exists()


def test_results_that_cannot_be_read_are_told_before_the_training(tmp_path):
    for text in ("{", "[]"):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(ValueError, match="results.json .* Delete it"):
            train.train(settings(tmp_path))
        assert not (tmp_path / "flags.cfg").exists()


def test_warm_start_takes_weights_and_evaluate_means_the_new_run(
    finished, monkeypatch, caplog
):
    folder, _ = finished
    options = dict(restart=True, stop_at_step=1, learning_rate=0.0, weight_decay=0.0)
    used, outcome = train.train(settings(folder, checkpoint_dir=str(folder), **options))
    # A restart begins in a fresh folder.
    assert used.checkpoints.model_save_dir == f"{folder}-2"
    assert outcome["checkpoint_dir"] == f"{folder}-2/step_00000001"
    assert json.loads((folder / "results.json").read_text())["steps"] == 10
    assert outcome["steps"] == 1  # not the steps of the run it starts from
    # A step at learning rate 0 does not change the loaded weights.
    rows = stored_rows(outcome["checkpoint_dir"])
    np.testing.assert_array_equal(rows, stored_rows(folder / "1"))
    # flags.cfg of the new run names both folders; the new run's checkpoint is used.
    flags = [f"--flagfile={folder}-2/flags.cfg"]
    assert trained.find(parse(flags)) == outcome["checkpoint_dir"]
    # But the command line means what it says.
    named = [*flags, f"--checkpoint_dir={folder}"]
    assert trained.find(parse(named)) == str(folder / "1")
    # A resume starts from nothing else, so it must not write another name to flags.cfg,
    # nor one that a stranger's run may say.
    resumed, _ = choose_folder(parse([*flags, "--checkpoint_dir=other"]), 1)
    assert resumed.checkpoints.checkpoint_dir == ""
    # Without it, what is in the default folder does not matter.
    monkeypatch.chdir(folder.parent)
    os.symlink(f"{folder}-2", "output")
    named = Settings.from_values(checkpoint_dir=str(folder))
    assert trained.find(named) == str(folder / "1")
    # If the new run is damaged or gone, the start is not its model.
    options = parse(flags)
    os.truncate(f"{outcome['checkpoint_dir']}/manifest.json", 9)
    with pytest.raises(DamagedCheckpointError):
        trained.find(options)
    os.rename(f"{folder}-2", f"{folder}-3")
    assert trained.find(options) == str(folder / "1")
    assert f"{folder}-2 contains no checkpoint" in caplog.text


def test_other_classes_need_finetune_which_starts_a_new_head(tmp_path, finished):
    options = {"checkpoint_dir": str(finished[0]), "stop_at_step": 1}
    options |= {"learning_rate": 0.0, "weight_decay": 0.0}
    asked = settings(tmp_path / "f", num_classes=9, **options)
    with pytest.raises(ValueError, match="7 classes.*finetune.*num_classes=9"):
        train.train(asked)
    _, outcome = train.train(asked.replace(task_type="finetune"))
    assert stored_rows(outcome["checkpoint_dir"]).shape == (9, 8)
    # Else, classes of other images, or before an edit, would begin as those of others.
    path, options["task_type"] = finished[0] / "1", "finetune"
    for count, edited in ((42, False), (40, False), (42, True)):
        content = manifest.read(str(path))
        if edited:
            content["state"]["class_edits"] = content["state"].pop("data") != {}
            seal(path, content)
        folder = tmp_path / f"{count}{edited}"
        used = train.train(settings(folder, num_sample_per_epoch=count, **options))[1]
        same = np.array_equal(stored_rows(used["checkpoint_dir"]), stored_rows(path))
        assert same == (count == 42 and not edited)


def test_other_runs_in_remote_folders_are_found_before_the_training(finished, tmp_path):
    folder, start = finished[0], tmp_path / "start"
    there = {"fs_name": f"file://{tmp_path}", "fs_dir_for_save": "a"}
    # Its results would be replaced.
    with pytest.raises(ValueError, match="must not hold another run"):
        train.train(settings(tmp_path / "b", **there))
    check_remote(settings(folder, **there), str(folder / "1"))
    # A checkpoint that is left over would be the newest.
    shutil.copytree(folder / "1", start / "7")
    there |= {"fs_dir_for_save": "", "fs_checkpoint_dir": "a"}
    asked = settings(tmp_path / "c", **there, checkpoint_dir=str(start))
    with pytest.raises(ValueError, match="must be one of .*start/7"):
        check_remote(asked, None)
    (start / "7").rename(start / "1")
    check_remote(asked, None)


def test_stopping_early_does_not_change_the_schedule(tmp_path):
    """A run resumed on another number of replicas equals an uninterrupted one."""
    smooth = {
        "learning_rate_decay_type": "cosine",
        "synchronized_batch_norm": True,
        "save_checkpoints_steps": 5,  # also the last step of an epoch
    }
    _, whole = train.train(settings(tmp_path / "whole", **smooth))
    folder = tmp_path / "parts"
    train.train(tiny_run.settings(folder, stop_at_step=7, **smooth))
    saved = sorted(p.name for p in folder.iterdir() if p.is_dir())
    assert saved == ["0", "step_00000005", "step_00000007"]
    flags = [f"--flagfile={folder}/flags.cfg", "--stop_at_step=0", "--num_replicas=1"]
    used, parts = train.train(parse(flags))
    assert used.training.global_batch_size == 10
    assert parts["steps"] == whole["steps"] == 10
    np.testing.assert_allclose(
        stored_rows(parts["checkpoint_dir"]),
        stored_rows(whole["checkpoint_dir"]),
        rtol=1e-3,
        atol=1e-3,
    )
    # Step 10 was saved under two names; a resume uses that of the finished epoch.
    assert choose_folder(settings(folder, **smooth), 1)[1] == str(folder / "1")


def test_an_error_in_mid_epoch_keeps_the_steps_that_are_done(tmp_path):
    make_train_data(tmp_path, [number % 7 for number in range(40)])
    data = tmp_path / "train_data"
    asked = settings(
        tmp_path / "e",
        dataset_name="image_list",
        dataset_dir=str(data),
        prefetch_buffer_size=1,
        num_parallel_batches=1,
    )
    # Damage the image that comes last in the first epoch.
    source = load_batches(asked, 10).source
    last = Order().indices(source.num_examples, lambda: source.labels)[-1]
    (data / "images" / f"{last:08d}.jpg").write_bytes(b"\xff\xd8 broken")
    with pytest.raises(ValueError, match=rf"images/{last:08d}\.jpg"):
        train.train(asked)
    assert [p.name for p in (tmp_path / "e").glob("step_*")] == ["step_00000003"]


def test_the_flags_of_saving_reach_the_checkpoints(tmp_path):
    asked = settings(
        tmp_path / "s",
        num_epochs=3,
        save_checkpoints_epochs=2,
        keep_checkpoint_max=1,
        save_best=True,
        save_weights_only=True,
        save_in_background=False,
        with_test=True,
    )
    _, outcome = train.train(asked)
    kept = [p for p in sorted((tmp_path / "s").iterdir()) if p.is_dir()]
    states = [manifest.read(str(path))["state"] for path in kept]
    # Of epochs 0, 1 and 2, only 1 is saved, and those that are the best so far. The
    # save at the end replaces all but the best.
    best = str(states[-1]["best"]["epoch"])
    assert {p.name for p in kept} == {best, "2" if best == "2" else "step_00000015"}
    assert outcome["checkpoint_dir"] == str(kept[-1])
    assert {manifest.read(str(path))["kind"] for path in kept} == {"weights"}
    with pytest.raises(ValueError, match="only weights.*--checkpoint_dir="):
        train.train(asked)


def test_the_best_is_verified_where_verification_goes_by_steps(tmp_path):
    asked = settings(
        tmp_path,
        num_epochs=1,
        save_best=True,
        calc_acc=True,
        eval_every_n_steps=3,
        with_test=True,
    )
    _, outcome = train.train(asked)
    state = manifest.read(str(tmp_path / "0"))["state"]
    assert state["global_step"] == 5
    accuracy = outcome["verification"]["mock"]["accuracy"]
    assert state["best"] == {"epoch": 0, "accuracy": accuracy, "of": ["mock_accuracy"]}
    verified = [row for row in rows_of(tmp_path) if "verification/mock_xnorm" in row]
    assert [row["step"] for row in verified] == [3, 5]
    assert 0 <= outcome["training_accuracy"] <= outcome["training_top5_accuracy"] <= 1
    # Stored results from another step describe other weights and are discarded.
    older = {**outcome, "steps": 3, "export_dir": "elsewhere"}
    (tmp_path / "results.json").write_text(json.dumps(older))
    _, again = train.train(asked)
    assert again["export_dir"] is None and "training_accuracy" not in again


def test_a_damaged_checkpoint_stops_a_run_or_not_as_the_flag_says(finished):
    folder, _ = finished
    damaged = folder / "1" / "training.npz"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"training\.npz has.*{folder}/0 is intact"):
        choose_folder(settings(folder), 2)
    assert damaged.exists()
    previous = settings(folder, on_damaged_checkpoint="previous")
    assert choose_folder(previous, 2)[1] == str(folder / "0")
    assert (folder / "1.damaged-1" / "training.npz").exists()


# Whoever was sent a checkpoint would otherwise run any code that Python finds there.
@pytest.mark.parametrize("name", ["evaluate", "export"])
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("model_name", "evil.network", "code of its own, model_name=evil.network"),
        ("loss_type", "dist_evil.Loss", "code of its own, loss_type=dist_evil.Loss"),
        ("dataset_name", "evil", "code of its own, dataset_name=evil"),
        ("emb_size", "x", "manifest.json: state.flags: emb_size"),
        ("emb_size", 2**30, "does not fit this model"),
    ],
)
def test_the_options_of_a_checkpoint_run_no_code(
    finished, monkeypatch, name, option, value, said
):
    path = finished[0] / "1"
    (finished[0] / "evil.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(finished[0])
    content = manifest.read(str(path))
    content["state"]["flags"][option] = value
    seal(path, content)
    done = commands.run(name, f"--checkpoint_dir={path}")
    assert done.status == 1 and said in done.err
    assert "Traceback" not in done.err and "evil" not in sys.modules


def test_the_options_of_the_head_reach_the_step(tmp_path, monkeypatch):
    built = []
    build_model = recipe.build_model
    monkeypatch.setattr(
        recipe,
        "build_model",
        lambda *args, **own: built.append(build_model(*args, **own)) or built[-1],
    )
    used, outcome = train.train(
        settings(
            tmp_path / "m",
            loss_type="dist_magface",
            head_tile_rows=4,
            head_slot_dtype="bfloat16",
            gradient_accumulation_steps=2,
            stop_at_step=2,
        )
    )
    (model,) = built
    assert np.isfinite(outcome["loss"])
    assert model.accumulation_steps == 2
    # Tiles of 4 rows split the 7 classes into 4 + 3.
    slot = model.trainer.updater.slots()["weight/velocity"]
    assert [tile.shape[0] for tile in slot.tiles[0]] == [4, 3]
    assert slot.tiles[0][0].dtype == "bfloat16"
    # Evaluation does not need the class weights, whatever the tile size.
    asked = parse([f"--flagfile={used.checkpoints.model_save_dir}/flags.cfg"])
    assert trained.load(asked).model.head.num_classes == 1


def test_a_file_in_the_folders_place_is_named(tmp_path):
    (tmp_path / "notes").write_text("mine")
    for folder in ("notes", "notes/run"):
        with pytest.raises(OSError, match="notes"):
            train.train(settings(tmp_path / folder))
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"val_targets": ("lfw",), "with_test": True}, "--with_test=false"),
        ({"model_name": "resnet5"}, "resnet50"),
        ({"dataset_name": "mok"}, "mock"),
        ({"gradient_accumulation_steps": 11}, "needs an image per part and replica"),
        ({"num_epochs": 1, "warmup_epochs": 1.0}, "Lower warmup_epochs"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(tmp_path, changes, complaint):
    folder = tmp_path / "d"
    with pytest.raises((ValueError, FileNotFoundError), match=complaint):
        train.train(settings(folder, **changes))
    assert not folder.exists()
