"""The command on a small model that was trained with inception's frame."""

import json

import numpy as np
import pytest
from PIL import Image

import plsc_tf
from plsc_tf.data import alignment, preprocessing
from plsc_tf.evaluation import verification
from plsc_tf.jobs import train, trained
from plsc_tf.jobs.embed import command
from plsc_tf.jobs.evaluate import command as evaluation
from plsc_tf.options.settings import Settings
from tests.jobs.tiny_run import NETWORK

# inception's frame for 28 x 28 pixels: of 32 x 32 the middle 87.5 %, which is as large.
SIZE, STORED, MIDDLE = 28, 32, np.s_[:, 2:30, 2:30]
NAMES = ["a.png", "a/1.png", "a/b c.png", "z.PNG"]  # sorted


def pixels(count, seed=0, size=STORED):
    return np.random.default_rng(seed).integers(
        0, 256, (count, size, size, 3), np.uint8
    )


def save(folder, names, images):
    for name, image in zip(names, images, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A folder of a run of one step, with its export."""
    folder = tmp_path_factory.mktemp("run")
    save(folder / "train", [f"{k % 2}/{k}.png" for k in range(8)], pixels(8))
    options = {
        **NETWORK,
        "dataset_name": "folder",
        "dataset_dir": str(folder / "train"),
        "num_classes": 2,
        "preprocessing_name": "inception",
        "image_shape": (3, SIZE, SIZE),
        "batch_size": 4,
        "stop_at_step": 1,
        "val_targets": (),
        "tensorboard": False,
        "run_report": False,
        "model_save_dir": str(folder / "run"),
    }
    train.train(Settings.from_values(**options))
    return folder / "run"


@pytest.fixture(scope="module")
def model(run_dir):
    settings = Settings.from_values(checkpoint_dir=str(run_dir), num_replicas=2)
    return trained.load(settings).model


def embed(run_dir, folder, **options):
    options = {
        "checkpoint_dir": str(run_dir),
        "images": str(folder / "photos"),
        "output": str(folder / "faces.npy"),
        "num_replicas": 2,
        "embed_batch_size": 2,
    } | options
    table = dict(command.embed(Settings.from_values(**options)))
    return np.load(table["embeddings"]), table


def sums(model, framed):
    mirrored = np.ascontiguousarray(framed[:, :, ::-1])
    return model.embed(framed, 2).astype(float) + model.embed(mirrored, 2)


@pytest.fixture(scope="module")
def expected(model):
    return sums(model, pixels(4, seed=1)[MIDDLE])


@pytest.fixture
def photos(tmp_path):
    save(tmp_path / "photos", NAMES[::-1], pixels(4, seed=1)[::-1])
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    return tmp_path


def test_a_folder_is_framed_as_in_training(run_dir, photos, expected):
    rows, table = embed(run_dir, photos)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-7)
    assert (table["images"], table["embedding size"]) == ("4", 8)
    lines = (photos / "faces.txt").read_text().splitlines()
    assert [line.rstrip("\t") for line in lines] == NAMES
    assert sorted(path.name for path in photos.iterdir()) == [
        "faces.npy",
        "faces.txt",
        "photos",
    ]


def test_an_export_gives_the_same(run_dir, photos, expected):
    exported = {"checkpoint_dir": "", "saved_model": str(run_dir / "export")}
    rows, table = embed(run_dir, photos, **exported)
    assert table["SavedModel"].endswith("export/1")
    assert table["mirror images added"] == "yes"
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)


def test_one_pass_and_lengths_of_one(run_dir, model, photos):
    exported = {"checkpoint_dir": "", "saved_model": str(run_dir / "export")}
    rows, table = embed(run_dir, photos, **exported, flip=False, normalize=True)
    assert table["mirror images added"] == "no"
    single = model.embed(pixels(4, seed=1)[MIDDLE], 2)
    single /= np.linalg.norm(single, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, single, rtol=1e-4, atol=1e-5)


def test_faces_in_photographs_are_aligned(run_dir, model, tmp_path):
    points = alignment.REFERENCE * 0.9 + [[20, 12]] + pixels(1)[0, :5, :2, 0] / 100
    points = np.round(points * 4) / 4  # the same as text and in float32
    numbers = " ".join(f"{value:.4f}" for value in points.ravel())
    names = ["one.png", "two 2.png"]
    save(tmp_path / "photos", names, pixels(2, 3, 120))
    lines = [f"{name} {numbers}\n" for name in names]
    (tmp_path / "points.txt").write_text("".join(lines))
    rows, table = embed(run_dir, tmp_path, landmarks=str(tmp_path / "points.txt"))
    # Cut out as training images are, of 112 pixels, and framed like them.
    faces = [plsc_tf.align(image, points) for image in pixels(2, 3, 120)]
    middle = preprocessing.build("inception", (SIZE, SIZE))
    framed = np.stack([middle.evaluate(face).numpy() for face in faces])
    np.testing.assert_allclose(rows, sums(model, framed), rtol=1e-5, atol=1e-6)
    assert table["aligned by five points"] == "yes"
    # A list may hold the points itself, and has its own order.
    (tmp_path / "list.txt").write_text("".join(lines[::-1]))
    again, _ = embed(
        run_dir,
        tmp_path,
        checkpoint_dir="",
        saved_model=str(run_dir / "export"),
        images=str(tmp_path / "list.txt"),
        image_dir=str(tmp_path / "photos"),
        output=str(tmp_path / "again.npy"),
    )
    np.testing.assert_allclose(again, rows[::-1], rtol=1e-4, atol=1e-5)


def test_evaluation_reads_the_files_of_embed(run_dir, tmp_path):
    names = [f"p{k // 2}/image {k}.png" for k in range(24)]
    save(tmp_path / "photos", names, pixels(24, seed=4))
    embed(run_dir, tmp_path)
    lines = [f"{names[k]}\t{names[k ^ 1]}\t1\n" for k in range(12)]
    lines += [f"{names[k]}\t{names[k + 3]}\t0\n" for k in range(12)]
    (tmp_path / "photos" / "pairs.txt").write_text("".join(lines[::2] + lines[1::2]))
    lists = {"pair_lists": (str(tmp_path / "photos" / "pairs.txt"),)}
    saved = Settings.from_values(embeddings=str(tmp_path / "faces.npy"), **lists)
    images = Settings.from_values(checkpoint_dir=str(run_dir), num_replicas=2, **lists)
    first, second = (dict(evaluation.evaluate(one)) for one in (saved, images))
    for name in ("accuracy", "EER", "AUC", "threshold", "pairs"):
        assert first[f"pairs: {name}"] == second[f"pairs: {name}"], name


def test_images_that_cannot_be_read(run_dir, photos, expected):
    (photos / "photos" / "a" / "b c.png").write_bytes(b"no image")
    exported = {"checkpoint_dir": "", "saved_model": str(run_dir / "export")}
    with pytest.raises(ValueError, match=r"a/b c\.png cannot be read.*skip_bad_record"):
        embed(run_dir, photos, **exported)
    assert not list(photos.glob("*faces*")), "nothing half is left"
    rows, table = embed(run_dir, photos, **exported, skip_bad_records=True)
    np.testing.assert_allclose(rows, expected[[0, 1, 3]], rtol=1e-4, atol=1e-5)
    assert table["left out, not readable"] == "1"
    assert (photos / "faces.txt").read_text().split() == [*NAMES[:2], NAMES[3]]


def test_mistakes_are_errors(run_dir, photos, monkeypatch):
    def refused(error, message, **options):
        with pytest.raises(error, match=message):
            embed(run_dir, photos, **options)

    refused(ValueError, "output must name", output="")
    refused(ValueError, "must end in .npy", output="faces.txt")
    refused(ValueError, "images must name a folder", images="")
    refused(FileNotFoundError, "no folder or list", images="nowhere")
    refused(ValueError, "no image below", images=str(run_dir / "export"))
    refused(ValueError, "both name a model", saved_model="x")
    refused(FileNotFoundError, "'nowhere'", saved_model="nowhere", checkpoint_dir="")
    (photos / "faces.txt").write_text("mine")
    refused(FileExistsError, "faces.txt exists already")
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    refused(ValueError, "embed is for one process")


def test_verification_frames_images_as_the_run_does(run_dir, model, tmp_path):
    names = [f"n{k // 2}/n{k // 2}_{k % 2:04d}.jpg" for k in range(24)]
    save(tmp_path, names, pixels(24, seed=5))
    same = [f"n{k}\t0\t1" for k in range(12)]
    different = [f"n{k}\t0\tn{(k + 5) % 12}\t1" for k in range(12)]
    lines = [line for both in zip(same, different, strict=True) for line in both]
    (tmp_path / "pairs.txt").write_text("\n".join(lines))
    path = str(tmp_path / "pairs.txt")
    settings = Settings.from_values(
        checkpoint_dir=str(run_dir), num_replicas=2, val_targets=(path,)
    )
    table = dict(evaluation.evaluate(settings))
    pairs = plsc_tf.load_pairs(path)
    framed = pairs.decoded((STORED, STORED))[MIDDLE]
    rows = sums(model, framed)
    expected = verification.verify(rows, pairs.left, pairs.right, pairs.same)
    whole = sums(model, pairs.decoded((SIZE, SIZE)))
    other = verification.verify(whole, pairs.left, pairs.right, pairs.same)
    assert table["pairs: AUC"] == f"{expected.auc:.5f}" != f"{other.auc:.5f}"
    assert table["pairs: EER"] == f"{expected.eer:.5f}"
