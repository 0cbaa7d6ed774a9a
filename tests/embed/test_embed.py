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

# inception's frame for 28 x 28 pixels: of 32 x 32 the middle 87.5 %, which is as large.
SIZE, STORED, MIDDLE = 28, 32, np.s_[:, 2:30, 2:30]


def pixels(count, seed=0, size=STORED):
    return np.random.default_rng(seed).integers(
        0, 256, (count, size, size, 3), np.uint8
    )


def save(folder, names, pictures):
    for name, picture in zip(names, pictures, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / name)


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """A folder of a run of one step, with its export."""
    folder = tmp_path_factory.mktemp("run")
    names = [f"{k % 2}/{k}.png" for k in range(8)]
    save(folder / "train", names, pixels(8))
    train.train(
        Settings.from_values(
            dataset_name="folder",
            dataset_dir=str(folder / "train"),
            num_classes=2,
            preprocessing_name="inception",
            image_shape=(3, SIZE, SIZE),
            model_name="iresnet",
            model_options="depths=1-1,width=8,head=gap",
            emb_size=8,
            num_replicas=2,
            global_batch_size=8,
            stop_at_step=1,
            val_targets=(),
            model_save_dir=str(folder / "run"),
        )
    )
    return folder / "run"


@pytest.fixture(scope="module")
def model(trained_run):
    asked = Settings.from_values(checkpoint_dir=str(trained_run), num_replicas=2)
    return trained.load(asked).model


NAMES = ["a.png", "a/1.png", "a/b c.png", "z.PNG"]  # sorted


@pytest.fixture
def photos(tmp_path):
    save(tmp_path / "photos", NAMES[::-1], pixels(4, seed=1)[::-1])
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    return tmp_path


def embed(trained_run, folder, **options):
    options = {
        "checkpoint_dir": str(trained_run),
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


def test_a_folder_is_framed_as_in_training(trained_run, model, photos):
    found, table = embed(trained_run, photos)
    assert found.dtype == np.float32
    expected = sums(model, pixels(4, seed=1)[MIDDLE])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert (table["images"], table["embedding size"]) == ("4", 8)
    lines = (photos / "faces.txt").read_text().splitlines()
    assert [line.rstrip("\t") for line in lines] == NAMES
    assert sorted(path.name for path in photos.iterdir()) == [
        "faces.npy",
        "faces.txt",
        "photos",
    ]


def test_one_pass_and_lengths_of_one(trained_run, model, photos):
    found, table = embed(trained_run, photos, flip=False, normalize=True)
    assert table["mirror images added"] == "no"
    expected = model.embed(pixels(4, seed=1)[MIDDLE], 2)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_an_export_gives_the_same(trained_run, photos):
    found, _ = embed(trained_run, photos)
    again, table = embed(
        trained_run,
        photos,
        checkpoint_dir="",
        saved_model=str(trained_run / "export"),
        output=str(photos / "served.npy"),
    )
    assert table["SavedModel"].endswith("export/1")
    assert table["mirror images added"] == "yes"
    np.testing.assert_allclose(again, found, rtol=1e-4, atol=1e-5)


def test_faces_in_photographs_are_aligned(trained_run, model, tmp_path):
    (tmp_path / "photos").mkdir()
    points = alignment.REFERENCE * 0.9 + [[20, 12]] + pixels(1)[0, :5, :2, 0] / 100
    points = np.round(points * 4) / 4  # the same as text and in float32
    lines = []
    for name, picture in zip(("one", "two 2"), pixels(2, 3, 120), strict=True):
        Image.fromarray(picture).save(tmp_path / "photos" / f"{name}.png")
        numbers = " ".join(f"{value:.4f}" for value in points.ravel())
        lines.append(f"{name}.png {numbers}\n")
    (tmp_path / "points.txt").write_text("".join(lines))
    (tmp_path / "list.txt").write_text("".join(lines[::-1]))
    found, table = embed(trained_run, tmp_path, landmarks=str(tmp_path / "points.txt"))
    # Cut out as training pictures are, of 112 pixels, and framed like them.
    faces = [plsc_tf.align(picture, points) for picture in pixels(2, 3, 120)]
    middle = preprocessing.build("inception", (SIZE, SIZE))
    framed = np.stack([middle.evaluate(face).numpy() for face in faces])
    np.testing.assert_allclose(found, sums(model, framed), rtol=1e-5, atol=1e-6)
    assert table["aligned by five points"] == "yes"
    # A list may hold the points itself, and has its own order.
    again, _ = embed(
        trained_run,
        tmp_path,
        images=str(tmp_path / "list.txt"),
        image_dir=str(tmp_path / "photos"),
        output=str(tmp_path / "again.npy"),
    )
    np.testing.assert_array_equal(again, found[::-1])


def test_evaluation_reads_what_was_written(trained_run, tmp_path):
    names = [f"p{k // 2}/picture {k}.png" for k in range(24)]
    save(tmp_path / "photos", names, pixels(24, seed=4))
    embed(trained_run, tmp_path)
    lines = [f"{names[k]}\t{names[k ^ 1]}\t1\n" for k in range(12)]
    lines += [f"{names[k]}\t{names[k + 3]}\t0\n" for k in range(12)]
    (tmp_path / "photos" / "pairs.txt").write_text("".join(lines[::2] + lines[1::2]))
    lists = {"pair_lists": (str(tmp_path / "photos" / "pairs.txt"),)}
    saved = Settings.from_values(embeddings=str(tmp_path / "faces.npy"), **lists)
    pictures = Settings.from_values(
        checkpoint_dir=str(trained_run), num_replicas=2, **lists
    )
    first, second = (dict(evaluation.evaluate(one)) for one in (saved, pictures))
    for name in ("accuracy", "EER", "AUC", "threshold", "pairs"):
        assert first[f"pairs: {name}"] == second[f"pairs: {name}"], name


def test_pictures_that_cannot_be_read(trained_run, photos):
    whole, _ = embed(trained_run, photos)
    (photos / "photos" / "a" / "b c.png").write_bytes(b"no picture")
    other = {"output": str(photos / "others.npy")}
    with pytest.raises(ValueError, match=r"a/b c\.png cannot be read.*skip_bad_record"):
        embed(trained_run, photos, **other)
    assert not list(photos.glob("*others*")), "nothing half is left"
    found, table = embed(trained_run, photos, skip_bad_records=True, **other)
    np.testing.assert_allclose(found, whole[[0, 1, 3]], rtol=1e-5, atol=1e-6)
    assert table["left out, not readable"] == "1"
    assert (photos / "others.txt").read_text().split() == [*NAMES[:2], NAMES[3]]


def test_mistakes_are_told(trained_run, photos, monkeypatch):
    def refused(error, message, **options):
        with pytest.raises(error, match=message):
            embed(trained_run, photos, **options)

    refused(ValueError, "output must name", output="")
    refused(ValueError, "must end in .npy", output="faces.txt")
    refused(ValueError, "images must name a folder", images="")
    refused(FileNotFoundError, "no folder or list", images="nowhere")
    refused(ValueError, "no image below", images=str(trained_run / "tensorboard"))
    refused(ValueError, "both name a model", saved_model="x")
    refused(FileNotFoundError, "'nowhere'", saved_model="nowhere", checkpoint_dir="")
    (photos / "faces.txt").write_text("mine")
    refused(FileExistsError, "faces.txt exists already")
    monkeypatch.setenv(
        "TF_CONFIG",
        json.dumps(
            {
                "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
                "task": {"type": "worker", "index": 0},
            }
        ),
    )
    refused(ValueError, "embed is for one process")


def test_verification_frames_pictures_as_the_run_does(trained_run, model, tmp_path):
    names = [f"n{k // 2}/n{k // 2}_{k % 2:04d}.jpg" for k in range(24)]
    save(tmp_path, names, pixels(24, seed=5))
    same = [f"n{k}\t0\t1" for k in range(12)]
    different = [f"n{k}\t0\tn{(k + 5) % 12}\t1" for k in range(12)]
    lines = [line for both in zip(same, different, strict=True) for line in both]
    (tmp_path / "pairs.txt").write_text("\n".join(lines))
    path = str(tmp_path / "pairs.txt")
    asked = Settings.from_values(
        checkpoint_dir=str(trained_run), num_replicas=2, val_targets=(path,)
    )
    table = dict(evaluation.evaluate(asked))
    pairs = plsc_tf.load_pairs(path)
    framed = pairs.decoded((STORED, STORED))[MIDDLE]
    rows = sums(model, framed)
    expected = verification.verify(rows, pairs.left, pairs.right, pairs.same)
    whole = sums(model, pairs.decoded((SIZE, SIZE)))
    other = verification.verify(whole, pairs.left, pairs.right, pairs.same)
    assert table["pairs: AUC"] == f"{expected.auc:.5f}" != f"{other.auc:.5f}"
    assert table["pairs: EER"] == f"{expected.eer:.5f}"
