"""The command: lists, templates and cards, of saved embeddings and of a small model."""

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
from plsc_tf.evaluation import verification
from plsc_tf.settings import Settings
from plsc_tf.training import run
from plsc_tf.training.evaluating import command


def people_rows(num_people=24, each=4, size=16, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(num_people, size))
    ids = np.repeat(np.arange(num_people), each)
    return (centres[ids] + 0.7 * rng.normal(size=(len(ids), size))), ids


def detected(names):
    """Scores of the detector, to weight pictures with."""
    return 0.5 + np.arange(len(names)) % 5 / 10


def write_lists(folder, names, ids, seed=1):
    """pairs.txt, known.txt, unknown.txt and an IJB folder over named pictures."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, len(names), (2, 600))
    b = np.where(np.arange(600) % 2 == 0, a - a % 4 + (a + 1) % 4, b)
    keep = a != b
    lines = [
        f"{names[i]} {names[j]} {int(ids[i] == ids[j])}"
        for i, j in zip(a[keep], b[keep], strict=True)
    ]
    (folder / "pairs.txt").write_text("\n".join(lines))
    known = [f"{names[i]} {ids[i]}" for i in range(0, len(names), 4) if ids[i] % 2]
    sought = [f"{names[i]} {ids[i]}" for i in range(len(names)) if i % 4]
    (folder / "known.txt").write_text("\n".join(known))
    (folder / "unknown.txt").write_text("\n".join(sought))
    meta = folder / "set" / "meta"
    meta.mkdir(parents=True)
    # Two templates of each person: the first two pictures, one media, and the others.
    media = [f"{name} {i // 2} {i // 2 + i % 4 // 3}" for i, name in enumerate(names)]
    (meta / "x_face_tid_mid.txt").write_text("\n".join(media))
    # The faces lie where they are expected in pictures of 16 x 16 already.
    points = " ".join(f"{value:.5f}" for value in alignment.REFERENCE.ravel() / 7)
    faces = [
        f"{name} {points} {score}"
        for name, score in zip(names, detected(names), strict=True)
    ]
    (meta / "x_name_5pts_score.txt").write_text("\n".join(faces))
    count = len(names) // 2
    pairs = [
        f"{i} {j} {int(ids[2 * i] == ids[2 * j])}"
        for i in range(count)
        for j in range(i)
    ]
    (meta / "x_template_pair_label.txt").write_text("\n".join(pairs))
    rows = [f"{i},{ids[2 * i]}" for i in range(count)]
    header = "TEMPLATE_ID,SUBJECT_ID\n"
    (meta / "x_1N_gallery_G1.csv").write_text(header + "\n".join(rows[::4]))
    (meta / "x_1N_probe_mixed.csv").write_text(header + "\n".join(rows[1::2]))
    return a[keep], b[keep]


@pytest.fixture
def saved(tmp_path):
    """Saved embeddings with names beside them, and lists over them."""
    rows, ids = people_rows()
    names = [f"p{i:03d}.jpg" for i in range(len(rows))]
    np.save(tmp_path / "faces.npy", rows)
    (tmp_path / "faces.txt").write_text("\n".join(names))
    left, right = write_lists(tmp_path, names, ids)
    return tmp_path, rows, ids, left, right


def evaluate(folder, **options):
    options = {"embeddings": str(folder / "faces.npy")} | options
    return dict(command.evaluate(Settings.from_values(**options)))


def test_pairs_of_saved_embeddings(saved):
    folder, rows, ids, left, right = saved
    table = evaluate(folder, pair_lists=(str(folder / "pairs.txt"),))
    expected = verification.verify(rows, left, right, ids[left] == ids[right])
    accuracy = f"{expected.accuracy:.5f} ± {expected.std:.5f}"
    assert table["pairs: accuracy"] == accuracy
    assert table["pairs: EER"] == f"{expected.eer:.5f}"
    assert table["pairs: XNorm"] == f"{expected.xnorm:.5f}"
    assert table["pairs: TAR@FAR=1e-06"].startswith("n/a (")
    assert table["pairs: pairs"] == len(left)
    assert 0.6 < expected.accuracy < 0.99, "the case must not be trivial"


def write_tinyface(folder, people=12):
    """Folders of empty files and the saved embeddings that they are names of."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(people, 6))
    names, rows = [], []
    for label in range(people):
        for part, count in {"Gallery_Match": 2, "Probe": 2}.items():
            for k in range(count):
                names.append(f"{part}/{label + 100}_{k}.jpg")
                rows.append(centres[label] + rng.normal(size=6))
    for k in range(40):
        names.append(f"Gallery_Distractor/{k % 12 + 100}_d{k}.jpg")
        rows.append(rng.normal(size=6))
    for name in names:
        path = folder / "Testing_Set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / "Testing_Set" / "Probe" / "Thumbs.db").touch()
    np.save(folder / "tiny.npy", np.array(rows))
    (folder / "tiny.txt").write_text("\n".join(names))
    return names, np.array(rows)


def test_tinyface(tmp_path):
    names, rows = write_tinyface(tmp_path)
    table = evaluate(
        tmp_path,
        embeddings=str(tmp_path / "tiny.npy"),
        tinyface_dir=str(tmp_path / "Testing_Set"),
    )
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    gallery = [i for i, name in enumerate(names) if not name.startswith("Probe")]
    probes = [i for i, name in enumerate(names) if name.startswith("Probe")]

    def identity(i):
        # A distractor is nobody, whatever its name begins with.
        part, name = names[i].split("/")
        return -1 if part == "Gallery_Distractor" else int(name.split("_")[0])

    own = np.array([identity(i) for i in gallery])
    order = np.argsort(-unit[probes] @ unit[gallery].T, axis=1)
    hits = own[order] == np.array([identity(i) for i in probes])[:, None]
    for k in (1, 5, 20):
        expected = hits[:, :k].any(axis=1).mean()
        assert table[f"TinyFace: rank-{k}"] == f"{expected:.5f}"
        assert 0 < expected
    assert hits[:, :5].any(axis=1).mean() < 1, "the case must not be trivial"
    assert table["TinyFace: gallery entries"] == 24 + 40
    assert table["TinyFace: probes"] == 24


def test_tinyface_needs_its_folders_and_numbers(tmp_path):
    write_tinyface(tmp_path)
    given = {"embeddings": str(tmp_path / "tiny.npy")}
    with pytest.raises(FileNotFoundError, match="tinyface_dir expects Gallery_Match"):
        evaluate(tmp_path, **given, tinyface_dir=str(tmp_path))
    (tmp_path / "Testing_Set" / "Probe" / "x_1.jpg").touch()
    with pytest.raises(ValueError, match="12_3.jpg. Received: 'x_1.jpg'"):
        evaluate(tmp_path, **given, tinyface_dir=str(tmp_path / "Testing_Set"))


def test_rows_without_names_are_numbers(saved):
    folder, _, ids, left, right = saved
    (folder / "faces.txt").unlink()
    lines = [
        f"{a} {b} {int(ids[a] == ids[b])}" for a, b in zip(left, right, strict=True)
    ]
    (folder / "numbers.txt").write_text("\n".join(lines))
    table = evaluate(folder, pair_lists=(str(folder / "numbers.txt"),))
    assert table["numbers: pairs"] == len(left)


def test_templates_and_searches_of_saved_embeddings(saved):
    folder, rows, ids, *_ = saved
    table = evaluate(
        folder,
        template_dirs=(str(folder / "set"),),
        gallery=str(folder / "known.txt"),
        probes=str(folder / "unknown.txt"),
    )
    # By hand: media means (one media; two of one picture each), sums, directions.
    weighted = rows * detected(rows)[:, None]
    pooled = np.array(
        [
            weighted[i : i + 2].mean(axis=0)
            if i % 4 == 0
            else weighted[i : i + 2].sum(axis=0)
            for i in range(0, len(rows), 2)
        ]
    )
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    people = ids[::2]
    low, high = np.tril_indices(len(pooled), -1)
    cosines, same = (pooled @ pooled.T)[low, high], people[low] == people[high]
    limit = np.sort(cosines[~same])[::-1][int(0.1 * np.sum(~same))]
    assert table["x: TAR@FAR=0.1"] == f"{np.mean(cosines[same] > limit):.5f}"
    assert (table["x: templates"], table["x: pictures"]) == (48, 96)
    # The first template of every second person is known; all second ones are sought.
    scores = pooled[1::2] @ pooled[::4].T
    own = np.arange(0, 24, 2)
    rank_1 = np.mean(scores[own].argmax(axis=1) == own // 2)
    assert table["x gallery_G1: rank-1"] == f"{rank_1:.5f}"
    assert table["x gallery_G1: probes without"] == 12
    # The list: the first picture of every second person, the others are sought.
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    sought = np.flatnonzero(np.arange(len(rows)) % 4)
    mated = sought[ids[sought] % 2 == 1]
    found = (unit[mated] @ unit[4::8].T).argmax(axis=1) * 2 + 1
    assert table["unknown: rank-1"] == f"{np.mean(found == ids[mated]):.5f}"
    assert table["unknown: gallery entries"] == 12


def test_the_card_of_saved_embeddings(saved):
    folder, *_ = saved
    path = str(folder / "pairs.txt")
    table = evaluate(
        folder,
        pair_lists=(path,),
        card_dir=str(folder / "card"),
        plot_dir=str(folder / "plots"),
        card_far=0.1,
        bootstrap_samples=20,
    )
    card = json.loads((folder / "card" / "card.json").read_text())
    content = (folder / "faces.npy").read_bytes()
    assert card["model"]["sha256"] == hashlib.sha256(content).hexdigest()
    one = card["sets"]["pairs"]
    text = (folder / "pairs.txt").read_bytes()
    assert one["sha256"] == hashlib.sha256(text).hexdigest()
    assert (
        f"{one['threshold']['cosine']:.5f}"
        in table["pairs: cosine threshold at FAR=0.1"]
    )
    assert [pair["kind"] for pair in one["worst"]].count("false accept") == 8
    assert one["worst"][0]["cosine"] > one["worst"][7]["cosine"]
    page = (folder / "card" / "card.html").read_text()
    assert "data:image" not in page  # the lists name no files here
    charts = sorted(chart.name for chart in (folder / "plots").iterdir())
    assert charts == ["pairs_histogram.svg", "pairs_roc.svg"]
    best = one["threshold"]
    shown = table["pairs: threshold"]
    assert f"{best['best_squared_l2']:.5f}" in shown
    assert f"{best['best_cosine']:.5f}" in shown


def test_the_card_of_saved_embeddings_shows_images_that_lists_name(saved):
    folder, rows, *_ = saved
    for number in range(len(rows)):
        color = (number, 2 * number, 255 - number)
        Image.new("RGB", (20, 20), color).save(folder / f"p{number:03d}.jpg")
    evaluate(
        folder,
        pair_lists=(str(folder / "pairs.txt"),),
        card_dir=str(folder / "card"),
        bootstrap_samples=0,
    )
    page = (folder / "card" / "card.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 32  # 8 pairs of both kinds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "compared by pair_lists, template_dirs, tinyface_dir, or"),
        ({"gallery": "known.txt"}, "gallery and probes go together"),
        ({"pair_lists": ("nowhere.txt",)}, "no list 'nowhere.txt'"),
        ({"template_dirs": ("nowhere",)}, "folders with meta/ in them"),
        ({"val_targets": ("lfw",) * 2}, "pair_lists instead of val_targets"),
        ({"val_targets": ("lfw",)}, "pair_lists instead of val_targets"),
        ({"embeddings": "", "embedding_names": "a"}, "names the rows of embeddings"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(tmp_path, options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        evaluate(tmp_path, **options)


def test_names_that_are_not_there_are_told(saved):
    folder, *_ = saved
    lines = [f"p00{i}.jpg nobody.jpg 1" for i in range(9)] + ["p000.jpg p001.jpg 0"]
    (folder / "bad.txt").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="'nobody.jpg' is no name of a row"):
        evaluate(folder, pair_lists=(str(folder / "bad.txt"),))
    (folder / "faces.txt").write_text("one\ntwo")
    with pytest.raises(ValueError, match=r"name the 96 rows .*2 names"):
        evaluate(folder, pair_lists=(str(folder / "pairs.txt"),))


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
    run.train(
        Settings.from_values(
            dataset_name="folder",
            dataset_dir=str(folder / "train"),
            num_classes=8,
            image_shape=(3, 16, 16),
            model_name="iresnet",
            model_options="depths=1-1,width=8,head=gap",
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
    from plsc_tf.training import trained as loading

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
