"""The command: a training run goes on from a checkpoint with edited classes."""

import json
import shutil

import numpy as np
import pytest

from plsc_tf import classes
from plsc_tf.checkpoints import editing, manifest
from plsc_tf.data import figures
from plsc_tf.jobs import train, trained as trained_models
from plsc_tf.options.cli import parse
from plsc_tf.options.settings import Settings
from tests.checkpoints.small import seal
from tests.classes.tiny import PICTURES, SIZE, draw_classes, rows_of, run_command
from tests.folders import contents


@pytest.fixture(scope="module")
def edited(trained, tmp_path_factory):
    """(the folder of the result, the rows of the command's table)."""
    root = tmp_path_factory.mktemp("edited")
    draw_classes(root / "new", [20, 21])
    # Images of the nine classes of the result.
    draw_classes(root / "all", [0, 2, 4, 5, 6, 20, 21, 22, 23])
    before = contents(trained[0])
    table = run_command(
        f"--model_save_dir={trained[0]}",
        f"--edit_dir={root / 'edited'}",
        "--remove_classes=1",
        "--merge_classes=2+3",
        f"--class_images={root / 'new'}",
        "--add_classes=3",
        f"--new_list={root / 'label.txt'}",
    )
    assert contents(trained[0]) == before
    return root, table


def test_what_is_not_touched_is_the_same(trained, edited):
    root, table = edited
    old, new = trained[0] / "0", root / "edited" / "0"
    assert table["classes"] == "6 -> 9" and table["checkpoint"] == str(new)
    slot = "weight/accumulator"
    for name in ("weight", slot):
        kept = rows_of(old, name)[[0, 4, 5]]
        np.testing.assert_array_equal(rows_of(new, name)[[0, 2, 3]], kept)
    for name in ("backbone.weights.h5", "training.npz"):
        assert (new / name).read_bytes() == (old / name).read_bytes()
    mean = rows_of(old, slot)[2:4].mean(axis=0)
    np.testing.assert_array_equal(rows_of(new, slot)[1], mean)
    # Adagrad's slots begin at 0.1, not at 0.
    np.testing.assert_array_equal(rows_of(new, slot)[4:], np.full((5, 8), 0.1, "f4"))
    merged = rows_of(old)[2:4].astype(np.float64)
    norms = np.linalg.norm(merged, axis=1)
    # The mean direction of both classes, and their mean length.
    direction = (merged / norms[:, None]).mean(axis=0)
    direction *= norms.mean() / np.linalg.norm(direction)
    np.testing.assert_allclose(rows_of(new)[1], direction, rtol=1e-6)


def test_new_classes_are_the_means_of_their_pictures(trained, edited):
    root, _ = edited
    settings = Settings.from_values(model_save_dir=str(trained[0]), num_replicas=1)
    images = np.stack([figures.draw(0, 20, k, SIZE) for k in range(PICTURES)])
    found = trained_models.load(settings).model.embed(images).astype(np.float64)
    mean = np.mean(found / np.linalg.norm(found, axis=1, keepdims=True), axis=0)
    row = rows_of(root / "edited" / "0")[4]
    assert row @ mean / np.linalg.norm(row) / np.linalg.norm(mean) > 1 - 1e-6
    usual = np.linalg.norm(rows_of(trained[0] / "0"), axis=1).mean()
    np.testing.assert_allclose(np.linalg.norm(row), usual, rtol=1e-5)


def test_a_list_of_other_labels_is_refused(edited, tmp_path):
    # The data still has those from before the edit.
    paths = f"--edit_dir={tmp_path / 'e'}", f"--new_list={tmp_path / 'l.txt'}"
    with pytest.raises(ValueError, match="classes were edited"):
        run_command(f"--checkpoint_dir={edited[0] / 'edited/0'}", *paths)


def test_averages_are_lost_on_request_only(trained, tmp_path):
    place = tmp_path / "0"
    shutil.copytree(trained[0] / "0", place)
    content = manifest.read(str(place))
    seal(place, content | {"state": content["state"] | {"averages": [None]}})
    edit = [f"--checkpoint_dir={place}", f"--edit_dir={tmp_path}/e"]
    edit += ["--edit_weights_only"]
    with pytest.raises(ValueError, match="averages of the weights in .* would be lost"):
        run_command(*edit)
    assert run_command(*edit, "--ema_in_use=false")["checkpoint"] == f"{tmp_path}/e/0"


def test_the_map_and_the_list_have_the_new_labels(edited):
    root, _ = edited
    assert (root / "edited" / "labels_map.txt").read_text().splitlines() == [
        "0\t0\tperson00",
        "1\t-\tperson01",
        "2\t1\tperson02",
        "3\t1\tperson03",
        "4\t2\tperson04",
        "5\t3\tperson05",
        "-\t4\tperson20",
        "-\t5\tperson21",
        "-\t6\t-",
        "-\t7\t-",
        "-\t8\t-",
    ]
    listed = (root / "label.txt").read_text().splitlines()
    assert len(listed) == 5 + 11 + 5 + 6
    assert listed[0] == "person00/0.png 0"
    assert {line.split()[1] for line in listed if "person03" in line} == {"1"}
    assert not any("person01" in line for line in listed)


# Otherwise, renaming a folder after the training would change people's names.
def test_names_of_other_classes_are_not_written(centers, tmp_path):
    shutil.copytree(centers / "data", tmp_path / "renamed")
    (tmp_path / "renamed/person05").rename(tmp_path / "renamed/a")
    place = tmp_path / "0"
    shutil.copytree(centers / "run/0", place)
    content = manifest.read(str(place))
    content["state"]["flags"]["dataset_dir"] = str(tmp_path / "renamed")
    seal(place, content)
    edit = [f"--checkpoint_dir={place}", f"--edit_dir={tmp_path}/again"]
    edit.append("--drop_sub_centers")
    with pytest.raises(ValueError, match="not that of the training; .* Set dataset_di"):
        run_command(*edit)
    table = run_command(*edit, f"--dataset_dir={tmp_path / 'renamed'}")
    assert table["names"].startswith("none: the data is not that of the training; its")


def test_a_training_goes_on_in_the_same_folder(centers, dropped, edited):
    root, table = edited
    # A checkpoint, possibly a stranger's, must choose neither code nor places.
    assert not (root / "edited" / "flags.cfg").exists()
    assert "--sub_centers=1 " in dropped["or resume"]
    flags = table["or resume"].replace("<new data>", str(root / "all"))
    old = str(centers / "run" / "flags.cfg")
    flags = flags.replace("<flags.cfg of the training>", old).split()
    flags += ["--sub_centers=1", "--num_epochs=2", "--num_replicas=1"]
    _, outcome = train.train(parse(flags))
    assert outcome["num_classes"] == 9
    # Three steps of 33 pictures before, five of 49 after.
    assert outcome["steps"] == 4 + 5
    assert np.isfinite(outcome["loss"])
    trained_on = rows_of(root / "edited" / "1")
    assert trained_on.shape == (9, 8)
    assert not np.array_equal(trained_on, rows_of(root / "edited" / "0"))


EDIT, NOISE = {"edit_dir": "edited"}, {"noise_report": "noise.json"}
OTHER_DATA = {"dataset_name": "tests.classes.tiny", "new_list": "l.txt"}


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({}, ValueError, "Set edit_dir"),
        (EDIT | NOISE, ValueError, "Set edit_dir or noise_report"),
        (EDIT | {"remove_classes": "6"}, ValueError, "0 to 5. Received: classes=.6."),
        (EDIT | {"remove_classes": "9" * 20}, ValueError, "labels separated by spaces"),
        (EDIT | {"new_list": "no/list.txt"}, FileNotFoundError, "exist: 'no'"),
        (EDIT | {"class_images": "no"}, FileNotFoundError, "'no' does not exist"),
        (EDIT | {"drop_sub_centers": True}, ValueError, "one center per class, so"),
        ({"noise_report": "noise.txt"}, ValueError, "must end in .json"),
        ({"noise_report": "no/folder.json"}, FileNotFoundError, "does not exist: 'no'"),
        (NOISE | OTHER_DATA, ValueError, "does not store images as files"),
    ],
)
def test_an_impossible_task_writes_nothing(
    trained, tmp_path, monkeypatch, values, error, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        classes.main(Settings.from_values(model_save_dir=str(trained[0]), **values))
    assert not list(tmp_path.iterdir())


def test_of_two_edits_at_once_one_is_refused(trained, tmp_path, monkeypatch):
    # Else, the map in the folder would be wrong for one of its two checkpoints.
    place = tmp_path / "edited"

    def check_while_another_edits(*_):
        place.mkdir()
        (place / "labels_map.txt").write_text("0\t-\ta\n")

    monkeypatch.setattr(editing, "check_centers", check_while_another_edits)
    with pytest.raises(FileExistsError, match="labels_map"):
        run_command(f"--model_save_dir={trained[0]}", f"--edit_dir={place}")
    assert [*contents(place)] == ["labels_map.txt"]


def test_nothing_is_overwritten(trained, edited):
    root, _ = edited
    flags = f"--model_save_dir={trained[0]} --edit_dir={root / 'edited'}"
    with pytest.raises(FileExistsError, match="is not overwritten"):
        run_command(*flags.split(), "--remove_classes=1")
    told = json.loads((root / "edited" / "0" / "manifest.json").read_text())
    assert told["state"]["num_classes"] == told["state"]["flags"]["num_classes"] == 9
    assert told["state"]["flags"]["model_save_dir"] == str(root / "edited")
