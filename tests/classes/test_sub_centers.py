"""A training with several centers per class, and what is left of it with one."""

import shutil

import numpy as np
import pytest

import plsc_tf
from plsc_tf.classes import GROUPS
from plsc_tf.data import figures
from plsc_tf.jobs import train, trained
from plsc_tf.jobs.classes import command
from plsc_tf.options.cli import parse
from plsc_tf.options.settings import Settings
from tests.classes.test_edit_command import rows_of
from tests.classes.tiny import CLASSES, PICTURES, SIZE, TINY, draw_classes

CENTERS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a run on two replicas, and the images that it was trained on."""
    root = tmp_path_factory.mktemp("centers")
    draw_classes(root / "data", range(CLASSES))
    train.train(train_settings(root, num_epochs=1))
    return root


def train_settings(root, **changes):
    values = {
        **TINY,
        "dataset_dir": str(root / "data"),
        "model_save_dir": str(root / "run"),
        "sub_centers": CENTERS,
    }
    return Settings.from_values(**values | changes)


@pytest.fixture(scope="module")
def dropped(folder):
    """The rows of the command's table."""
    settings = parse(
        [
            f"--model_save_dir={folder / 'run'}",
            f"--edit_dir={folder / 'one'}",
            "--drop_sub_centers",
            f"--drop_angle={expected(folder)['limit']}",
            f"--new_list={folder / 'cleaned.txt'}",
            "--num_replicas=1",
        ],
        GROUPS,
    )
    return dict(command.run(settings))


def expected(folder):
    """By the definition: float64, image by image."""
    settings = Settings.from_values(model_save_dir=str(folder / "run"), num_replicas=1)
    model = trained.load(settings).model
    weights = rows_of(folder / "run" / "0").astype(np.float64)
    weights /= np.linalg.norm(weights, axis=2, keepdims=True)
    paths, dominant, angles, own = [], [], [], 0
    for label in range(CLASSES):
        numbers = range(PICTURES + label % 2)
        images = np.stack([figures.draw(0, label, k, SIZE) for k in numbers])
        rows = model.embed(images).astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = rows @ weights[label].T
        counts = np.bincount(cosines.argmax(axis=1), minlength=CENTERS)
        dominant.append(int(counts.argmax()))
        own += counts.max()
        angles += np.degrees(np.arccos(cosines[:, dominant[-1]])).tolist()
        paths += [f"person{label:02d}/{k}.png {label}" for k in numbers]
    ranked = np.sort(angles)
    # Between two images, so that rounding does not decide.
    limit = ranked[19:21].mean()
    near = [path for path, a in zip(paths, angles, strict=True) if a < limit]
    return {"dominant": dominant, "limit": limit, "near": near, "own": own}


def test_the_checkpoint_holds_all_centers_and_resumes_on_other_replicas(folder):
    before = rows_of(folder / "run" / "0")
    assert before.shape == (CLASSES, CENTERS, 8)
    assert rows_of(folder / "run" / "0", "weight/accumulator").shape == before.shape
    shutil.copytree(folder / "run", folder / "resumed")
    changes = {"num_epochs": 2, "num_replicas": 1, "batch_size": 10}
    settings = train_settings(folder, **changes, model_save_dir=str(folder / "resumed"))
    _, outcome = train.train(settings)
    # Four steps of 33 images in each epoch.
    assert outcome["steps"] == 8 and np.isfinite(outcome["loss"])
    after = rows_of(outcome["checkpoint_dir"])
    assert after.shape == before.shape and not np.array_equal(after, before)


def test_another_number_of_centers_is_an_error_that_names_the_shapes(folder):
    settings = train_settings(
        folder,
        checkpoint_dir=str(folder / "run" / "0"),
        model_save_dir=str(folder / "other"),
        sub_centers=1,
    )
    with pytest.raises(
        ValueError, match=r"weight: \[6, 3, 8\] in .*, \[6, 8\] here.*sub_centers"
    ):
        train.train(settings)


def test_the_dominant_centers_stay_and_far_images_leave_the_list(folder, dropped):
    wanted = expected(folder)
    old, new = folder / "run" / "0", folder / "one" / "0"
    every = np.arange(CLASSES)
    for name in ("weight", "weight/accumulator"):
        np.testing.assert_array_equal(
            rows_of(new, name), rows_of(old, name)[every, wanted["dominant"]]
        )
    assert len(wanted["near"]) == 20
    assert (folder / "cleaned.txt").read_text().splitlines() == wanted["near"]
    assert dropped["centers"] == "3 -> 1 per class"
    images = f"{wanted['own']} of 33 images"
    assert dropped["nearest to the dominant center"] == images
    (far,) = [row for name, row in dropped.items() if name.startswith("farther than")]
    assert far == "13 of 33 images"


def test_the_model_of_the_dominant_centers_is_loaded(folder, dropped):
    model = plsc_tf.load_model(folder / "one")
    rows = rows_of(folder / "one" / "0")
    np.testing.assert_array_equal(model.head.weights_as_numpy(), rows)


@pytest.mark.slow
def test_a_training_with_one_center_goes_on(folder, dropped):
    settings = parse(
        [f"--flagfile={folder / 'one' / 'flags.cfg'}", "--num_epochs=2"],
    )
    _, outcome = train.train(settings)
    assert outcome["steps"] == 8 and np.isfinite(outcome["loss"])
    assert rows_of(outcome["checkpoint_dir"]).shape == (CLASSES, 8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"remove_classes": "1"}, "3 centers per class.*--drop_sub_centers"),
        (
            {"noise_report": "n.json", "noise_centers": "weights", "edit_dir": ""},
            "3 centers per class",
        ),
        ({"edit_dir": "", "drop_sub_centers": True}, "drop_sub_centers"),
    ],
)
def test_what_needs_one_center_says_so(folder, tmp_path, monkeypatch, values, message):
    monkeypatch.chdir(tmp_path)
    given = {
        "model_save_dir": str(folder / "run"),
        "edit_dir": str(tmp_path / "edited"),
        **values,
    }
    with pytest.raises(ValueError, match=message):
        command.run(Settings.from_values(**given))
    assert not list(tmp_path.iterdir())


def test_nothing_to_drop(trained, tmp_path):
    settings = Settings.from_values(
        model_save_dir=str(trained[0]),
        edit_dir=str(tmp_path / "edited"),
        drop_sub_centers=True,
    )
    with pytest.raises(ValueError, match="one center per class: there are none"):
        command.run(settings)


def test_softmax_has_no_centers():
    with pytest.raises(ValueError, match="sub_centers.*loss_type=dist_softmax"):
        Settings.from_values(loss_type="dist_softmax", sub_centers=3)
