"""A training run with several centers per class, and what is left of it with one."""

import shutil

import numpy as np
import pytest

import plsc_tf
from plsc_tf import classes
from plsc_tf.jobs import train
from plsc_tf.options.settings import Settings
from tests.classes.tiny import CENTERS, CLASSES, rows_of, settings_of


def test_the_checkpoint_holds_all_centers_and_resumes_on_other_replicas(centers):
    before = rows_of(centers / "run" / "0")
    assert before.shape == (CLASSES, CENTERS, 8)
    assert rows_of(centers / "run" / "0", "weight/accumulator").shape == before.shape
    shutil.copytree(centers / "run", centers / "resumed")
    changes = {"num_epochs": 2, "num_replicas": 1, "batch_size": 10}
    settings = settings_of(centers, **changes, model_save_dir=str(centers / "resumed"))
    _, outcome = train.train(settings)
    # Four steps of 33 images in each epoch.
    assert outcome["steps"] == 8 and np.isfinite(outcome["loss"])
    after = rows_of(outcome["checkpoint_dir"])
    assert after.shape == before.shape and not np.array_equal(after, before)


def test_another_number_of_centers_is_an_error_that_names_the_shapes(centers):
    start, folder = f"{centers}/run/0", f"{centers}/other"
    options = {"checkpoint_dir": start, "model_save_dir": folder, "sub_centers": 1}
    words = r"weight: \[6, 3, 8\] in .*, \[6, 8\] here.*sub_centers"
    with pytest.raises(ValueError, match=words):
        train.train(settings_of(centers, **options))


def test_dominant_centers_stay_and_far_images_leave_a_list(centers, expected, dropped):
    old, new = centers / "run" / "0", centers / "one" / "0"
    every = np.arange(CLASSES)
    for name in ("weight", "weight/accumulator"):
        dominant = rows_of(old, name)[every, expected["dominant"]]
        np.testing.assert_array_equal(rows_of(new, name), dominant)
    assert len(expected["near"]) == 20
    assert (centers / "cleaned.txt").read_text().splitlines() == expected["near"]
    assert dropped["centers"] == "3 -> 1 per class"
    images = f"{expected['own']} of 33 images"
    assert dropped["nearest to the dominant center"] == images
    (far,) = [row for name, row in dropped.items() if name.startswith("farther than")]
    assert far == "13 of 33 images"


def test_the_model_of_the_dominant_centers_is_loaded(centers, dropped):
    model = plsc_tf.load_model(centers / "one")
    rows = rows_of(centers / "one" / "0")
    np.testing.assert_array_equal(model.head.weights_as_numpy(), rows)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"remove_classes": "1"}, "3 centers per class.*--drop_sub_centers"),
        ({"edit_dir": "", "drop_sub_centers": True}, "drop_sub_centers"),
    ],
)
def test_what_needs_one_center_says_so(centers, tmp_path, monkeypatch, values, message):
    monkeypatch.chdir(tmp_path)
    folders = {"model_save_dir": centers / "run", "edit_dir": tmp_path / "edited"}
    given = {name: str(folder) for name, folder in folders.items()} | values
    with pytest.raises(ValueError, match=message):
        classes.main(Settings.from_values(**given))
    assert not list(tmp_path.iterdir())
