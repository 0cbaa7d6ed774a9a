"""`python -m plsc_tf.convert`: its options, PLSC's, and what it refuses."""

import contextlib
import json
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from plsc_tf.convert import GROUPS
from plsc_tf.data.pairs import load_pairs
from plsc_tf.jobs import convert
from plsc_tf.options import cli
from tests.conversion import drawn
from tests.small_disk import mounted

EXAMPLES = drawn.images(50)


def command(*arguments):
    """The table that the command prints, as a dict."""
    return dict(convert.convert(cli.parse(arguments, GROUPS)))


def of_lines(folder, *arguments):
    """The same for a folder of base64 text."""
    return command("--dataset_name=base64_text", f"--dataset_dir={folder}", *arguments)


@pytest.fixture
def parts(tmp_path):
    drawn.write_base64(tmp_path / "in", EXAMPLES)
    return tmp_path / "in"


def test_class_folders_become_records_and_these_lines_in_the_same_order(tmp_path):
    for number, (image, label) in enumerate(EXAMPLES):
        folder = tmp_path / f"photos/{label}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(image)
    told = command(
        "--dataset_name=folder",
        f"--dataset_dir={tmp_path}/photos",
        f"--output_dir={tmp_path}/out",
        "--num_shards=3",
        "--seed=4",
    )
    records = drawn.read_records(tmp_path / "out")
    assert sorted(records) == sorted(EXAMPLES)
    assert told["records"] == "50"
    assert told["shards"].startswith("3 of 16 or 17 records")
    words = "--dataset_name=ms1m", "--train_files=*.tfrecord", "--output_format=base64"
    folders = f"--dataset_dir={tmp_path}/out", f"--output_dir={tmp_path}/lines"
    command(*words, *folders, "--noshuffle")
    assert drawn.read_base64(tmp_path / "lines") == records


def test_plscs_options(tmp_path, parts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = drawn.digests(parts)
    told = command("--data_dir=./in", "--file_list=file_list.txt", "--nranks=8")
    out = parts / "shuffled_8"
    assert told["written"] == "./in/shuffled_8"
    names = [f"base64_rank_{rank}" for rank in range(8)]
    assert (out / "file_list.txt").read_text().split() == names
    assert [(out / name).read_bytes().count(b"\n") for name in names] == [7] * 8
    found = drawn.read_base64(out)
    assert len(found) == 56 and set(found) == set(EXAMPLES)
    assert found[:50] != EXAMPLES and sorted(found[:50]) == sorted(EXAMPLES)
    assert before.items() <= drawn.digests(parts).items()
    # A list that is in the working directory only.
    (tmp_path / "mine.txt").write_text("part-1\n")
    command("--data_dir=./in", "--file_list=mine.txt", "--nranks=2")
    found = drawn.read_base64(parts / "shuffled_2")
    assert set(found) == set(drawn.read_lines(parts / "part-1"))


def test_a_preview_is_drawn_of_the_first_pictures(tmp_path, parts):
    path = f"{tmp_path}/ops.png"
    told = of_lines(parts, f"--preview={path}", "--image_shape=3,24,24")
    assert told == {"preview": path}
    assert np.array(Image.open(tmp_path / "ops.png")).std() > 10
    # It could be a picture of the user's.
    with pytest.raises(FileExistsError, match="ops.png' already exists"):
        of_lines(parts, f"--preview={path}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "ops.png"]


def test_the_same_command_again_finds_it_done(tmp_path, parts):
    arguments = parts, f"--output_dir={tmp_path}/out"
    of_lines(*arguments)
    before = drawn.digests(tmp_path / "out")
    assert of_lines(*arguments)["written"] == f"{tmp_path}/out (already done)"
    with pytest.raises(FileExistsError, match="contains another conversion"):
        of_lines(*arguments, "--seed=1")
    assert drawn.digests(tmp_path / "out") == before
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    shard = next(iter(manifest["files"]))
    (tmp_path / "out" / shard).write_bytes(b"")
    with pytest.raises(FileExistsError, match=f"{shard} is missing or was changed"):
        of_lines(*arguments)
    # An archive of images could bring other shards along. Only the time tells that.
    (tmp_path / "out/.begun").chmod(0o600)
    with pytest.raises(FileExistsError, match="or a copy"):
        of_lines(*arguments)


def test_other_folders_are_not_overwritten(tmp_path, parts):
    (tmp_path / "out").mkdir()
    for name, text in (("mine", "mine"), ("manifest.json", "[]")):
        (tmp_path / "out" / name).write_text(text)
        with pytest.raises(FileExistsError, match="contains other files"):
            of_lines(parts, f"--output_dir={tmp_path}/out")
        assert (tmp_path / "out" / name).read_text() == text
    (tmp_path / "empty").mkdir()
    of_lines(parts, f"--output_dir={tmp_path}/empty")
    assert len(drawn.read_records(tmp_path / "empty")) == 50


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["--data_dir=x"], cli.UsageError, "together, or none"),
        (["--num_shards=0"], cli.UsageError, "num_shards must be"),
        (["--to=bin"], cli.UsageError, "Set pairs and output_format=bin together"),
        (["--pairs=p.txt"], cli.UsageError, "Set pairs and output_format=bin together"),
        (["--output_format=zip"], cli.UsageError, "output_format must be"),
        (["--dataset_name=mock"], ValueError, "output_dir must be a local folder"),
        (["--output_dir=s3://a/b"], ValueError, "output_dir must be a local folder"),
        (
            ["--data_dir=/nowhere", "--file_list=x", "--nranks=2"],
            FileNotFoundError,
            "data_dir '/nowhere' does not exist",
        ),
    ],
)
def test_wrong_options(arguments, error, words):
    with pytest.raises(error, match=words):
        command(*arguments)


def test_pairs_become_a_bin_that_insightface_reads(tmp_path):
    folder = tmp_path / "CPLFW" / "aligned images"
    folder.mkdir(parents=True)
    images = [(f"Ann_{k}.jpg", image) for k, (image, _) in enumerate(EXAMPLES[:22])]
    for name, image in images:
        (folder / name).write_bytes(image)
    names = [name for name, _ in images]
    # Ann_0 is in the first pair and in the last one.
    pairs = [(names[2 * k], names[2 * k + 1], int(k < 10)) for k in range(10)]
    pairs += [(names[20], names[21], 0), (names[0], names[21], 0)]
    listed = tmp_path / "CPLFW" / "pairs_CPLFW.txt"
    listed.write_text("".join(f"{a} {n}\n{b} {n}\n" for a, b, n in pairs))
    arguments = [f"--pairs={listed}", "--to=bin", f"--output_dir={tmp_path}/bins"]
    table = command(*arguments)
    path = tmp_path / "bins" / "pairs_CPLFW.bin"
    assert table["pairs"] == "12, 10 of the same person"
    assert table["verify with"] == f"--val_targets={path}"
    # As insightface's and PLSC's verification.py read it.
    with path.open("rb") as file:
        bins, issame = pickle.load(file, encoding="bytes")  # noqa: S301
    assert type(bins) is list and type(issame) is list
    assert {type(one) for one in bins} == {bytes}
    assert {type(one) for one in issame} == {bool}
    by_bytes = {image: name for name, image in images}
    found = [by_bytes[one] for one in bins]
    rows = list(zip(found[::2], found[1::2], map(int, issame), strict=True))
    assert sorted(rows) == sorted(pairs)
    again, text = load_pairs(str(path)), load_pairs(str(listed))
    assert again.images == text.images
    np.testing.assert_array_equal(again.left, text.left)
    np.testing.assert_array_equal(again.same, text.same)
    with pytest.raises(FileExistsError, match="is not overwritten"):
        command(*arguments)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"AAAA\tx\n", "part-1, line 18: expected"),
        (b"AAA\t1\n", "part-1, line 18: .*multiple of 4"),
        (b"A*A=\t1\n", "part-1, line 18: the image is not base64"),
        (b"AAAA\t1\n", "part-1, line 18: expected a JPEG, PNG or GIF"),
        (b"Qk02AAAAAAAA\t1\n", "part-1, line 18: expected a JPEG, PNG or GIF"),
        (b"iVBORw0KGgo=\t100\n", "Label 100 at .*part-1, line 18 is outside"),
    ],
)
def test_bad_lines_are_named_and_nothing_is_made(tmp_path, parts, line, words):
    with (parts / "part-1").open("ab") as file:
        file.write(line)
    with pytest.raises(ValueError, match=words):
        of_lines(parts, f"--output_dir={tmp_path}/out", "--num_classes=50")
    assert not (tmp_path / "out").exists()


# Another user would make its links overwrite the files of who converts into /tmp.
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a folder of another user")
def test_the_folder_of_the_work_is_ones_own(tmp_path, parts):
    theirs = tmp_path / ".out.converting"
    theirs.mkdir()
    (theirs / "buckets").symlink_to(tmp_path)
    claim = theirs / f".writer-{'0' * 16}"
    claim.touch()  # Until it ends, this process would write its own claim there.
    os.chown(theirs, 65534, 65534)
    with pytest.raises(ValueError, match="out.converting' is another user's"):
        of_lines(parts, f"--output_dir={tmp_path}/out")
    assert not (tmp_path / "bucket_0").exists()
    assert claim.exists()


# An archive of images would bring it along, under the name of the output.
@pytest.mark.parametrize("link", [".out.converting", ".out.converting/shards"])
def test_the_folder_of_the_work_has_no_links(tmp_path, parts, link):
    precious = tmp_path / "mine" / "shards" / "precious"
    precious.parent.mkdir(parents=True)
    precious.touch()
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=r"out\.converting' must not have links"):
        of_lines(parts, f"--output_dir={tmp_path}/out")
    assert precious.exists() and os.listdir(tmp_path / "mine") == ["shards"]


# Who converts a stranger's list and publishes the result would publish their own files.
def test_lines_of_base64_hold_images_only(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("a password")
    (tmp_path / "in" / "label.txt").write_text("../secret 0\n")
    words = ["--dataset_name=image_list", f"--dataset_dir={tmp_path}/in"]
    words += [f"--output_dir={tmp_path}/out", "--to=base64", "--num_shards=1"]
    with pytest.raises(ValueError, match="secret.*expected a JPEG, PNG or GIF"):
        command(*words)


@pytest.mark.parametrize("kind", ["link", "root of a disk", "here"])
def test_a_folder_that_cannot_be_replaced_is_told_before_work(tmp_path, parts, kind):
    target = tmp_path / "out"
    target.mkdir()
    for part in parts.glob("*0"):
        part.write_text("no base64\n")
    with contextlib.ExitStack() as stack:
        if kind == "link":
            (tmp_path / "link").symlink_to(target)
            target = tmp_path / "link"
        elif kind == "here":
            stack.enter_context(contextlib.chdir(target))
            target = "."
        else:
            stack.enter_context(mounted(target, "1m"))
        with pytest.raises(OSError, match="Not a directory|busy|Invalid argument"):
            of_lines(parts, f"--output_dir={target}", "--num_shards=1")


def test_a_folder_of_records_keeps_their_other_features(tmp_path):
    drawn.write_records(tmp_path / "in", EXAMPLES, 1, height=5)
    options = "--dataset_name=ms1m", f"--dataset_dir={tmp_path}/in", "--num_shards=1"
    command(*options, f"--output_dir={tmp_path}/out", "--noshuffle")
    (shard,) = (tmp_path / "out").glob("*.tfrecord")
    assert shard.read_bytes() == (tmp_path / "in" / "0.tfrecord").read_bytes()
