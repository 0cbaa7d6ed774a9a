"""`evaluate` and `embed` on a small trained model: cards, lists, templates, workers."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from PIL import ExifTags, Image

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.data import alignment, figures, images, preprocessing
from plsc_tf.evaluation import verification
from plsc_tf.jobs import train, trained as loading
from plsc_tf.jobs.evaluate import command
from plsc_tf.options.settings import Settings
from tests import detectors, programs
from tests.checkpoints import small
from tests.evaluation.saved_embeddings import embed, evaluate, repeat, write_lists
from tests.jobs import tiny_run

# inception's frame for 28 x 28 pixels: of 32 x 32 the middle 87.5 %, which is as large.
SIZE, STORED, MIDDLE = 28, 32, np.s_[:, 2:30, 2:30]
NAMES = ["a.png", "a/1.png", "a/b c.png", "z.PNG"]  # sorted
LEAKS = ("n08/n08_0000.jpg", "n09/n09_0001.jpg")


def random_pixels(count, seed=0, size=STORED):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, size, size, 3), np.uint8)


def save(folder, names, pixels):
    for name, image in zip(names, pixels, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name, quality=95)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two steps on images of eight people, some of which are verified."""
    folder = tmp_path_factory.mktemp("trained")
    ids = np.repeat(np.arange(24), 4)
    names = [f"n{k:02d}/n{k:02d}_{i % 4:04d}.jpg" for i, k in enumerate(ids)]
    size = STORED, STORED
    pixels = [figures.draw(0, person, i % 4, size) for i, person in enumerate(ids)]
    save(folder / "train", names[:32], pixels[:32])
    save(folder / "val", names[32:], pixels[32:])
    # Two images of the pairs are trained on: one as it is, one saved anew.
    leaks = [(folder / "val" / name).read_bytes() for name in LEAKS]
    (folder / "train" / "n00" / "leak.jpg").write_bytes(leaks[0])
    again = Image.fromarray(images.decode(leaks[1]).numpy())
    again.save(folder / "train" / "n00" / "again.png")
    lines = ["10\t30"]
    for i in range(60):
        person, other = 8 + i % 16, 8 + (i + 1 + i // 16) % 16
        second = "" if i % 2 else f"n{other:02d}\t"
        lines.append(f"n{person:02d}\t{i % 4}\t{second}{(i + 1) % 4}")
    (folder / "pairs.txt").write_text("\n".join(lines))
    options = {
        "dataset_name": "folder",
        "dataset_dir": str(folder / "train"),
        "num_classes": 8,
        "preprocessing_name": "inception",
        "image_shape": (3, SIZE, SIZE),
        "batch_size": 4,
        "stop_at_step": 2,
        "val_targets": (),
        "export_at_end": True,
    }
    train.train(tiny_run.settings(folder / "run", **options))
    return folder, names[32:], ids[32:] - 8


@pytest.fixture(scope="module")
def run_dir(trained):
    return trained[0] / "run"


@pytest.fixture(scope="module", autouse=True)
def built_once(trained):
    """Builds and traces the network once; each command loads the weights."""
    built, build_model = {}, loading.recipe.build_model

    def build_once(settings, *args, **options):
        if (count := settings.dataset.num_classes) not in built:
            built[count] = build_model(settings, *args, **options)
        return built[count]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading.recipe, "build_model", build_once)
        yield


@pytest.fixture(scope="module")
def model(run_dir):
    settings = Settings.from_values(checkpoint_dir=str(run_dir), num_replicas=2)
    return loading.load(settings).model


# With those of another model, a card would tell of other leaks.
def test_class_rows_that_were_exchanged_are_in_no_card(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained[0] / "run", folder)
    (rows,) = folder.rglob("weight-*.npy")
    rows.write_bytes(rows.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(manifest.DamagedCheckpointError, match="not have the checksum"):
        evaluate_run(folder, card_dir=str(tmp_path / "card"))


def evaluate_run(run_dir, **options):
    options = {"checkpoint_dir": str(run_dir), "num_replicas": 2} | options
    return dict(command.evaluate(Settings.from_values(**options)))


def sums(model, framed):
    mirrored = np.ascontiguousarray(framed[:, :, ::-1])
    return model.embed(framed, 2).astype(float) + model.embed(mirrored, 2)


def aligned(pixels, points):
    """Cut out as training images are, of 112 pixels, and framed like them."""
    frame = preprocessing.build("inception", (SIZE, SIZE))
    faces = (plsc_tf.align_face(image, points) for image in pixels)
    return np.stack([*map(frame.evaluate, faces)])


@pytest.fixture(scope="module")
def evaluated(trained, tmp_path_factory):
    """(the table, the folder with the card) of the trained model."""
    folder, card_dir = trained[0], tmp_path_factory.mktemp("card")
    options = {"card_dir": str(card_dir), "card_far": 0.4, "bootstrap_samples": 20}
    pairs = (str(folder / "pairs.txt"),)
    return evaluate_run(folder / "run", val_targets=pairs, **options), card_dir


def test_the_card_of_a_trained_model(trained, evaluated):
    folder, *_ = trained
    table, card_dir = evaluated
    card = json.loads((card_dir / "card.json").read_text())
    one = card["sets"]["pairs"]
    accuracy = one["figures"]["accuracy"]["value"]
    assert table["pairs: accuracy"].startswith(f"{accuracy:.5f}")
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
    files = json.loads((manifest / "manifest.json").read_text())["files"]
    lines = "".join(f"{name} {files[name]['blake3']}\n" for name in sorted(files))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert card["model"]["weights_sha256"] == digest
    assert card["data"]["examples"] == 34
    assert (card_dir / "card.html").read_text().count("data:image/jpeg;base64,") == 32


def test_images_are_compared_with_the_data_that_options_name(trained, tmp_path):
    # A forged checkpoint could name any other, of which the card must quote nothing.
    options = {"card_dir": str(tmp_path / "c"), "bootstrap_samples": 2}
    options["val_targets"] = (f"{trained[0]}/pairs.txt",)
    # And images that were trained on may be elsewhere by now.
    for folder, end in ("nowhere", "cannot be read"), (f"{trained[0]}/val", "differ"):
        evaluate_run(trained[0] / "run", **options, dataset_dir=folder)
        sets = json.loads((tmp_path / "c/card.json").read_text())["sets"]
        assert sets["pairs"]["duplicates"]["training set"]["note"].endswith(end)


def test_folders_of_other_names_may_be_other_classes(trained, tmp_path, caplog):
    for split in "train", "test":
        shutil.copytree(trained[0] / "train", tmp_path / split)
    options = {"val_targets": ("test",), "dataset_dir": str(tmp_path)}
    for name in "n00", "z":
        for split in "train", "test":
            (tmp_path / split / "n00").rename(tmp_path / split / name)
        evaluate_run(trained[0] / "run", **options)
        assert ("labels of the test split may be wrong" in caplog.text) == (name == "z")


def test_the_card_of_a_trained_model_repeats_its_evaluation(evaluated):
    assert repeat(evaluated[1] / "card.json").startswith("yes, all ")


# Otherwise, a stranger's run that names it would be evaluated in its place.
def test_a_repetition_evaluates_the_checkpoint_that_options_name(evaluated, tmp_path):
    card = json.loads((evaluated[1] / "card.json").read_text())
    shutil.copytree(card["model"]["checkpoint"], tmp_path / "run" / "0")
    content = manifest.read(str(tmp_path / "run" / "0"))
    content["state"]["flags"]["checkpoint_dir"] = "mine"
    small.seal(tmp_path / "run" / "0", content)
    run = card["options"]["model_save_dir"] = str(tmp_path / "run")
    card["model"]["checkpoint"] = run
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(FileNotFoundError, match="mine"):
        repeat(tmp_path / "card.json", checkpoint_dir="mine")


def test_images_by_lists_and_by_templates(trained, model, tmp_path):
    folder, names, ids = trained
    left, right = write_lists(tmp_path, names, ids, 112 / STORED)
    (tmp_path / "set" / "loose_crop").symlink_to(folder / "val")
    lists = {
        "pair_lists": (str(tmp_path / "pairs.txt"),),
        "gallery": str(tmp_path / "known.txt"),
        "probes": str(tmp_path / "unknown.txt"),
    }
    sets = {"template_dirs": (str(tmp_path / "set"),)}
    place = {"image_dir": str(folder / "val")}
    table = evaluate_run(folder / "run", **lists, **sets, **place)
    assert table["pairs: pairs"] == len(left)
    assert table["x: images"] == len(names)
    assert table["x gallery_G1: probes"] == 16
    # The same numbers as from the files that `embed` writes for the same images.
    embed(folder / "run", tmp_path, images=str(folder / "val"))
    again = evaluate(tmp_path, **lists)
    # Templates have five points: faces are cut out at 112 pixels first.
    pixels = np.stack([np.asarray(Image.open(folder / "val" / n)) for n in names])
    faces = aligned(pixels, alignment.REFERENCE * STORED / 112)
    np.save(tmp_path / "faces.npy", sums(model, faces))
    again |= evaluate(tmp_path, **sets)
    for name, value in again.items():
        if name not in ("embeddings", "pairs: XNorm"):
            assert table[name] == value, name


def test_an_image_that_is_missing_is_named(trained, tmp_path):
    folder, names, ids = trained
    write_lists(tmp_path, [*names[:-1], "gone.jpg"], ids)
    lists = {"pair_lists": (str(tmp_path / "pairs.txt"),)}
    with pytest.raises(ValueError, match="gone.jpg cannot be read"):
        evaluate_run(folder / "run", **lists, image_dir=str(folder / "val"))
    # A set that was requested beside the lists is not left out, the default neither.
    with pytest.raises(FileNotFoundError, match="lfw"):
        evaluate_run(folder / "run", **lists, val_targets=("lfw",))


def test_the_workers_of_a_cluster_share_the_work(trained, evaluated, tmp_path):
    folder, *_ = trained
    table, card_dir = evaluated
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
    done = programs.run("-m", "plsc_tf.launch", *launch, timeout=300)
    # Only the chief prints, and the figures are those of one process.
    other = (tmp_path / "logs" / "worker-1.log").read_text()
    assert "pairs: accuracy" in done.out and "pairs: accuracy" not in other
    assert table["pairs: accuracy"] in done.out
    cards = [(at / "card.json").read_text() for at in (tmp_path / "card", card_dir)]
    assert json.loads(cards[0])["sets"] == json.loads(cards[1])["sets"]


@pytest.fixture(scope="module")
def expected(model):
    return sums(model, random_pixels(4, seed=1)[MIDDLE])


@pytest.fixture
def photos(tmp_path):
    save(tmp_path / "photos", NAMES[::-1], random_pixels(4, seed=1)[::-1])
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    return tmp_path


def test_a_folder_is_framed_as_in_training(run_dir, photos, expected):
    rows, table = embed(run_dir, photos)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-7)
    assert (table["images"], table["embedding size"]) == ("4", 8)
    lines = (photos / "faces.txt").read_text().splitlines()
    assert [line.rstrip("\t") for line in lines] == NAMES
    left = sorted(path.name for path in photos.iterdir())
    assert left == ["faces.npy", "faces.txt", "photos"]


def test_an_export_gives_the_same(run_dir, model, photos, expected):
    exported = {"checkpoint_dir": "", "saved_model": str(run_dir / "export")}
    rows, table = embed(run_dir, photos, **exported)
    assert table["model"].endswith("export/1")
    assert table["mirror images added"] == "yes"
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    # One pass, and lengths of one.
    exported |= {"flip": False, "normalize": True, "output": str(photos / "one.npy")}
    rows, table = embed(run_dir, photos, **exported)
    assert table["mirror images added"] == "no"
    single = model.embed(random_pixels(4, seed=1)[MIDDLE], 2)
    single /= np.linalg.norm(single, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, single, rtol=1e-4, atol=1e-5)


def test_faces_in_photographs_are_aligned(run_dir, model, tmp_path):
    points = (
        alignment.REFERENCE * 0.9 + [[20, 12]] + random_pixels(1)[0, :5, :2, 0] / 100
    )
    points = np.round(points * 4) / 4  # the same as text and in float32
    numbers = " ".join(f"{value:.4f}" for value in points.ravel())
    names = ["one.png", "two 2.png"]
    save(tmp_path / "photos", names, random_pixels(2, 3, 120))
    lines = [f"{name} {numbers}\n" for name in names]
    (tmp_path / "points.txt").write_text("".join(lines))
    rows, table = embed(run_dir, tmp_path, landmarks=str(tmp_path / "points.txt"))
    framed = aligned(random_pixels(2, 3, 120), points)
    np.testing.assert_allclose(rows, sums(model, framed), rtol=1e-5, atol=1e-6)
    assert table["aligned by five points"] == "yes"
    # A list has its own order.
    (tmp_path / "list.txt").write_text("\n".join(names[::-1]))
    again, _ = embed(
        run_dir,
        tmp_path,
        checkpoint_dir="",
        saved_model=str(run_dir / "export"),
        images=str(tmp_path / "list.txt"),
        image_dir=str(tmp_path / "photos"),
        landmarks=str(tmp_path / "points.txt"),
        output=str(tmp_path / "again.npy"),
    )
    np.testing.assert_allclose(again, rows[::-1], rtol=1e-4, atol=1e-5)


def test_faces_are_found_in_photographs(run_dir, model, tmp_path, monkeypatch):
    near = alignment.REFERENCE * 0.9 + [20, 12]
    faces = {120: [near], 121: [alignment.REFERENCE * 0.3, near]}
    monkeypatch.setattr(detectors, "faces", faces)
    options = {"detect": "tests.detectors:detect"}
    one, two = random_pixels(1, 3, 120)[0], random_pixels(1, 4, 121)[0]
    save(tmp_path / "photos", ["one.png", "two.png"], [one, two])
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(np.rot90(one)).save(tmp_path / "photos" / "turned.png", exif=exif)
    rows, table = embed(run_dir, tmp_path, **options)
    pixels = [aligned([x], near) for x in (one, one, two)]
    expected = sums(model, np.concatenate(pixels))
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)
    assert table["aligned by five points"] == "yes"
    save(tmp_path / "photos", ["none.png"], random_pixels(1, 5, 119))
    options["output"] = str(tmp_path / "more.npy")
    with pytest.raises(ValueError, match="none.png cannot be read: no face was found"):
        embed(run_dir, tmp_path, **options)
    again, table = embed(run_dir, tmp_path, **options, skip_bad_records=True)
    np.testing.assert_array_equal(again, rows)
    assert table["skipped, unreadable"] == "1"
    with pytest.raises(ValueError, match="Set only one.*landmarks=points.txt"):
        embed(run_dir, tmp_path, **options, landmarks="points.txt")


def test_images_that_cannot_be_read(run_dir, photos, expected):
    (photos / "photos" / "a" / "b c.png").write_bytes(b"no image")
    exported = {"checkpoint_dir": "", "saved_model": str(run_dir / "export")}
    with pytest.raises(ValueError, match=r"a/b c\.png cannot be read.*skip_bad_record"):
        embed(run_dir, photos, **exported)
    assert not list(photos.glob("*faces*")), "nothing half is left"
    rows, table = embed(run_dir, photos, **exported, skip_bad_records=True)
    np.testing.assert_allclose(rows, expected[[0, 1, 3]], rtol=1e-4, atol=1e-5)
    assert table["skipped, unreadable"] == "1"
    assert (photos / "faces.txt").read_text().split() == [*NAMES[:2], NAMES[3]]


def test_mistakes_are_errors(run_dir, photos, monkeypatch):
    def refused(error, message, **options):
        with pytest.raises(error, match=message):
            embed(run_dir, photos, **options)

    refused(ValueError, "output must name", output="")
    refused(ValueError, "must end in .npy", output="faces.txt")
    refused(ValueError, "images must name a folder", images="")
    refused(FileNotFoundError, "'nowhere'", images="nowhere")
    refused(ValueError, "contains no images", images=str(run_dir / "export"))
    refused(ValueError, "Set only one", saved_model="x")
    refused(FileNotFoundError, "'nowhere'", saved_model="nowhere", checkpoint_dir="")
    (photos / "faces.txt").write_text("mine")
    refused(FileExistsError, "faces.txt' already exists")
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    refused(ValueError, "embed must run in one process")


def test_verification_frames_images_as_the_run_does(trained, evaluated, model):
    pairs = plsc_tf.load_pairs(str(trained[0] / "pairs.txt"))
    framed = pairs.decoded((STORED, STORED))[MIDDLE]
    expected, other = (
        verification.verify(sums(model, shown), pairs.left, pairs.right, pairs.same)
        for shown in (framed, pairs.decoded((SIZE, SIZE)))
    )
    auc, eer = (evaluated[0][f"pairs: {name}"].split()[0] for name in ("AUC", "EER"))
    assert auc == f"{expected.auc:.5f}" != f"{other.auc:.5f}"
    assert eer == f"{expected.eer:.5f}"
