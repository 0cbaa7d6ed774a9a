"""The command on a small trained model: cards, lists, templates, workers."""

import hashlib
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import plsc_tf
from plsc_tf.data import alignment, images
from plsc_tf.jobs import train
from plsc_tf.jobs.evaluate import command
from plsc_tf.options.settings import Settings
from tests.evaluation.saved_embeddings import evaluate, write_lists

LEAKS = ("n08/n08_0000.jpg", "n09/n09_0001.jpg")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of one step on pictures of eight people, some of which are verified."""
    folder = tmp_path_factory.mktemp("trained")
    rng = np.random.default_rng(0)
    people = rng.integers(0, 256, (24, 6, 6, 3), np.uint8)
    names, ids = [], np.repeat(np.arange(24), 4)
    for i, person in enumerate(ids):
        noise = rng.integers(-60, 60, (6, 6, 3))
        pixels = np.clip(people[person] + noise, 0, 255).astype(np.uint8)
        split = "val" if person >= 8 else "train"
        (folder / split / f"n{person:02d}").mkdir(parents=True, exist_ok=True)
        name = f"n{person:02d}/n{person:02d}_{i % 4:04d}.jpg"
        image = Image.fromarray(pixels).resize((16, 16))
        image.save(folder / split / name, quality=95)
        if split == "val":
            names.append(name)
    # Two pictures of the pairs are trained on: one as it is, one saved anew.
    leaks = [folder / "val" / name for name in LEAKS]
    (folder / "train" / "n00" / "leak.jpg").write_bytes(leaks[0].read_bytes())
    pixels = images.decode(leaks[1].read_bytes()).numpy()
    Image.fromarray(pixels).save(folder / "train" / "n00" / "again.png")
    lines = ["10\t30"]
    for i in range(60):
        person, other = 8 + i % 16, 8 + (i + 1 + i // 16) % 16
        if i % 2:
            lines.append(f"n{person:02d}\t{i % 4}\t{(i + 1) % 4}")
        else:
            lines.append(f"n{person:02d}\t{i % 4}\tn{other:02d}\t{(i + 1) % 4}")
    (folder / "pairs.txt").write_text("\n".join(lines))
    train.train(
        Settings.from_values(
            dataset_name="folder",
            dataset_dir=str(folder / "train"),
            num_classes=8,
            image_shape=(3, 16, 16),
            model_name="lenet",
            dropout=0.0,
            preprocessing_name="face",
            emb_size=8,
            num_replicas=2,
            global_batch_size=8,
            stop_at_step=2,
            val_targets=(),
            model_save_dir=str(folder / "run"),
            export_at_end=False,
        )
    )
    return folder, names, ids[ids >= 8] - 8


def test_the_card_of_a_trained_model(trained, tmp_path):
    folder, *_ = trained
    asked = Settings.from_values(
        checkpoint_dir=str(folder / "run"),
        val_targets=(str(folder / "pairs.txt"),),
        num_replicas=2,
        card_dir=str(tmp_path / "card"),
        card_far=0.4,
        bootstrap_samples=20,
    )
    table = dict(command.evaluate(asked))
    card = json.loads((tmp_path / "card" / "card.json").read_text())
    one = card["sets"]["pairs"]
    assert table["pairs: accuracy"].startswith(
        f"{one['figures']['accuracy']['value']:.5f}"
    )
    assert one["counts"]["identities"] == 16
    assert "folders" in one["intervals"]
    shared = one["duplicates"]["training set"]
    # 8 people with four pictures, and copies of two that are verified.
    assert shared["pictures"] == 34
    assert (shared["same_bytes"], shared["same_pixels"]) == (1, 2)
    found = sorted(path.rpartition("/")[2] for path in shared["first"])
    assert found == [name.rpartition("/")[2] for name in LEAKS]
    manifest = folder / "run" / card["model"]["checkpoint"].rpartition("/")[2]
    digest = hashlib.sha256((manifest / "manifest.json").read_bytes()).hexdigest()
    assert card["model"]["manifest_sha256"] == digest
    assert card["data"]["examples"] == 34
    page = (tmp_path / "card" / "card.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 32


def test_pictures_by_lists_and_by_templates(trained, tmp_path):
    folder, names, ids = trained
    left, right = write_lists(tmp_path, names, ids)
    (tmp_path / "set" / "loose_crop").symlink_to(folder / "val")
    asked = Settings.from_values(
        checkpoint_dir=str(folder / "run"),
        num_replicas=2,
        pair_lists=(str(tmp_path / "pairs.txt"),),
        template_dirs=(str(tmp_path / "set"),),
        gallery=str(tmp_path / "known.txt"),
        probes=str(tmp_path / "unknown.txt"),
        picture_dir=str(folder / "val"),
    )
    table = dict(command.evaluate(asked))
    assert table["pairs: pairs"] == len(left)
    assert table["x: pictures"] == len(names)
    assert table["x gallery_G1: probes"] == 16
    # The same numbers as from saved embeddings of the same pictures.
    from plsc_tf.jobs import trained as loading

    model = loading.load(asked).model
    pixels = np.stack([np.asarray(Image.open(folder / "val" / n)) for n in names])
    sums = model.embed(pixels).astype(float) + model.embed(pixels[:, :, ::-1])
    np.save(tmp_path / "faces.npy", sums)
    (tmp_path / "faces.txt").write_text("\n".join(names))
    again = evaluate(
        tmp_path,
        pair_lists=(str(tmp_path / "pairs.txt"),),
        gallery=str(tmp_path / "known.txt"),
        probes=str(tmp_path / "unknown.txt"),
    )
    # Templates have five points: faces are cut out at 112 pixels first.
    aligned = [plsc_tf.align(one, alignment.REFERENCE / 7) for one in pixels]
    aligned = images.resize(np.stack(aligned), (16, 16)).numpy()
    sums = model.embed(aligned).astype(float) + model.embed(aligned[:, :, ::-1])
    np.save(tmp_path / "faces.npy", sums)
    again |= evaluate(tmp_path, template_dirs=(str(tmp_path / "set"),))
    for name, value in again.items():
        if name not in ("embeddings", "pairs: XNorm"):
            assert table[name] == value, name


def test_a_picture_that_is_missing_is_named(trained, tmp_path):
    folder, names, ids = trained
    write_lists(tmp_path, [*names[:-1], "gone.jpg"], ids)
    asked = Settings.from_values(
        checkpoint_dir=str(folder / "run"),
        num_replicas=2,
        pair_lists=(str(tmp_path / "pairs.txt"),),
        picture_dir=str(folder / "val"),
    )
    with pytest.raises(ValueError, match="gone.jpg cannot be read"):
        command.evaluate(asked)
    # A set that was asked for beside the lists is not left out, the default neither.
    values = {"pair_lists": (str(tmp_path / "pairs.txt"),), "val_targets": ("lfw",)}
    values |= {"checkpoint_dir": str(folder / "run"), "num_replicas": 2}
    with pytest.raises(FileNotFoundError, match="lfw"):
        command.evaluate(Settings.from_values(**values))


def test_the_workers_of_a_cluster_share_the_work(trained, tmp_path):
    folder, *_ = trained
    asked = {
        "checkpoint_dir": str(folder / "run"),
        "val_targets": str(folder / "pairs.txt"),
        "num_replicas": "2",
        "card_far": "0.4",
        "bootstrap_samples": "20",
    }
    launch = ["--num_workers=2", f"--log_dir={tmp_path}/logs"]
    launch += ["--module=plsc_tf.evaluate", "--", f"--card_dir={tmp_path}/card"]
    launch += [f"--{name}={value}" for name, value in asked.items()]
    done = subprocess.run(
        [sys.executable, "-m", "plsc_tf.launch", *launch],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    asked["val_targets"] = (asked["val_targets"],)
    asked |= {"num_replicas": 2, "card_far": 0.4, "bootstrap_samples": 20}
    alone = Settings.from_values(card_dir=str(tmp_path / "alone"), **asked)
    table = dict(command.evaluate(alone))
    # Only the chief prints, and the figures are those of one process.
    other = (tmp_path / "logs" / "worker-1.log").read_text()
    assert "pairs: accuracy" in done.stdout and "pairs: accuracy" not in other
    assert table["pairs: accuracy"] in done.stdout
    cards = [
        json.loads((tmp_path / name / "card.json").read_text())
        for name in ("card", "alone")
    ]
    assert cards[0]["sets"] == cards[1]["sets"]
