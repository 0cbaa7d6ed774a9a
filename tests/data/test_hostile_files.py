"""Folders and lists made by an attacker: a clear error, and bounded time and memory."""

import contextlib
import itertools
import os
import pathlib
import pickle
import signal
import struct
import subprocess
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.checkpoints.importers import torch_files
from plsc_tf.data.detection import FaceFinder
from plsc_tf.data.faults import reason
from plsc_tf.data.images import orientation
from plsc_tf.data.load import load
from plsc_tf.data.pairs import load_pairs
from plsc_tf.data.paths import expand
from plsc_tf.data.preprocessing import build
from plsc_tf.data.readers import tfrecord
from plsc_tf.data.readers.base64_text import find_lines, listed_files
from plsc_tf.data.sampling import FILE_ORDER
from plsc_tf.data.unpickle import load_plain
from plsc_tf.evaluation.lists import read_rows
from plsc_tf.evaluation.report import Options
from plsc_tf.jobs.embed.image_list import list_images, points_of
from plsc_tf.jobs.evaluate import protocols
from plsc_tf.jobs.evaluate.embeddings import Pictures
from plsc_tf.options import cli
from plsc_tf.storage import files
from tests.data import recordio_writer as writer
from tests.data.conftest import (
    assert_second_is_bad,
    bounded,
    findings,
    opened,
    write_folders,
)
from tests.data.pickled import Call

NO_FILE = "is not a file, but a FIFO, device or folder"
SIZE = (12, 10)


@pytest.fixture
def alarm():
    """Ends the process of a test that waits for the writer of a FIFO."""
    signal.alarm(60)
    yield
    signal.alarm(0)


def replace(path, kind):
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "FIFO" else path.symlink_to("/dev/zero")


# A training waits for ever, or reads an endless file, on a folder from elsewhere.
@pytest.mark.parametrize("kind", ["FIFO", "device"])
@pytest.mark.parametrize("name", ["image_list", "folder"])
def test_a_fifo_or_device_is_a_bad_record(list_folder, alarm, name, kind):
    folder, place = list_folder, "images/13.png"
    if name == "folder":
        folder, place = list_folder / "folders", "3/1.png"
        write_folders(folder, "01234", 4)
    replace(folder / place, kind)
    options = dict(batch_size=5, image_size=SIZE)
    with pytest.raises(ValueError, match=f"{place}.*{NO_FILE}"):
        list(load(name, folder, **options))
    made = load(name, folder, skip_bad_records=True, **options)
    assert sum(len(labels) for _, labels in made) == 20
    assert len(made.source.skipped) == 1
    found = findings(name, folder)[0]
    assert (found["kind"], found["count"]) == ("unreadable", 1)
    assert NO_FILE in found["first"][0]["detail"]


@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_embed_and_evaluate_open_files_only(tmp_path, alarm, picture, kind):
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(picture(0, number))
    replace(tmp_path / "1.png", kind)
    replace(tmp_path / "rows.npy", kind)
    _, paths, _ = list_images(str(tmp_path))
    assert_second_is_bad(paths, f"1.png cannot be read: .*{NO_FILE}")
    with pytest.raises(ValueError, match=f"rows.npy {NO_FILE}"):
        read_rows(str(tmp_path / "rows.npy"))
    with pytest.raises(OSError, match=NO_FILE):
        list_images(str(tmp_path / "rows.npy"))


@pytest.fixture
def deep(tmp_path):
    """A folder with 1,500 folders within each other; there is an image in the last."""
    with contextlib.chdir(tmp_path), contextlib.ExitStack() as removed_at_the_end:
        # Python cannot remove it: pytest would fail, also in later runs.
        remove = ["rm", "-rf", str(tmp_path / "d")]
        removed_at_the_end.callback(subprocess.run, remove, check=True)
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        pathlib.Path("0.png").touch()
        os.chdir(tmp_path)
        yield tmp_path


# Python's own walk fails in folders this deep, without a word on the cause.
def test_a_deep_tree_is_read(deep, picture):
    (deep / "label.txt").write_text("d/0.png 0\n")
    (deep / "d" / "0.png").write_bytes(picture(0, 0))
    with bounded():
        assert opened("folder", deep).num_examples == 2
        assert len(list_images(str(deep))[0]) == 2
    kinds = [found["kind"] for found in findings("image_list", deep)]
    assert kinds == ["single_picture_classes"]


# With two links, each level of the walk doubles the folders to read: 2^40 of them.
def test_links_that_lead_back_end_the_listing(tmp_path, picture):
    (tmp_path / "0.png").write_bytes(picture(0, 0))
    for name in "ab":
        (tmp_path / name).symlink_to(tmp_path)
    for read in (list_images, lambda folder: opened("folder", folder)):
        with bounded(), pytest.raises(ValueError, match="is a link to the folder"):
            read(str(tmp_path))


# A reader that wants a whole line needs the memory of the longest one.
def test_long_lines_are_refused(tmp_path):
    path = tmp_path / "label.txt"
    path.write_bytes(b"x" * 50_000_000)
    for read, words in (
        (lambda _: opened("image_list", tmp_path), "a line of text"),
        (lambda path: list(find_lines(path)), "an image in base64"),
    ):
        with bounded(), pytest.raises(ValueError, match=f"line 1: expected {words}"):
            read(str(path))


def test_other_encodings_are_named(list_folder):
    path = list_folder / "label.txt"
    path.write_bytes(path.read_text().encode("utf-16"))
    with pytest.raises(ValueError, match="line 1: expected a path and a whole number"):
        opened("image_list", list_folder)


# A line of 84 bytes took a minute; with 100 digits for each point, years.
@pytest.mark.parametrize("gap", [" ", " " * 6000])
def test_a_line_of_points_is_matched_in_one_way_only(tmp_path, gap):
    (tmp_path / "list.txt").write_text(f"a {gap.join(['1' * 1000] * 9)} x\n")
    with bounded(), pytest.raises(ValueError, match="an image and ten numbers"):
        points_of(["a"], str(tmp_path / "list.txt"))


# 20,000 lines took seconds, a million of them hours.
def test_a_file_that_is_listed_again_and_again_is_found_at_once(tmp_path):
    (tmp_path / "part").touch()
    with bounded(), pytest.raises(ValueError, match="must list each file once"):
        expand(["part"] * 16000, str(tmp_path))


# A few bytes made the machine's folders match each other again and again.
def test_a_list_of_files_has_names_and_no_patterns(tmp_path):
    for name in ("part-1", "part-*"):
        (tmp_path / name).touch()
    (tmp_path / "file_list.txt").write_text("part-*\n")
    assert listed_files(str(tmp_path)) == [f"{tmp_path}/part-*"]


# Whoever evaluates saved embeddings got a traceback that names no file.
@pytest.mark.parametrize(
    "content",
    [
        *(b"PK\3\4 no archive", b"PK\5\6" + bytes(18)),
        *(b"{'shape': (2L, 3), ((", b"{[]: 1}"),
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (9" + b"9" * 20 + b", 4)}",
    ],
)
def test_a_damaged_file_of_rows_is_named(tmp_path, content):
    path = tmp_path / "rows.npy"
    if content.startswith(b"{"):
        content = b"\x93NUMPY\1\0\x80\0" + content.ljust(127) + b"\n"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows.npy is not a .npy file of numbers"):
        read_rows(str(path))


# A list of a megabyte took 56 GB: each name the memory of the longest one.
def test_one_long_name_does_not_lengthen_the_others(tmp_path):
    long, many = "x" * 300_000, range(20_000)
    pairs, people, probes = (tmp_path / f"{name}.txt" for name in ("a", "b", "c"))
    lines = [f"{long}/0 {long}/1 1", *(f"{k}/0 {k + 1}/0 0" for k in many)]
    pairs.write_text("\n".join(lines))
    people.write_text("\n".join([f"x {long}", *(f"{k} {k}" for k in many)]))
    probes.write_text("x 1\ny 2\n")

    class Source:
        def blocks(self, names, folder):
            yield np.eye(2)[np.arange(len(names)) % 2], np.ones(len(names))

    with bounded():
        protocols.pair_list(str(pairs), Source(), "", Options())
        protocols.search(str(people), str(probes), Source(), "", Options())


# A file of 128 bytes had a billion rows, each of which got a name.
def test_rows_without_numbers_are_refused(tmp_path):
    np.save(tmp_path / "rows.npy", np.empty((10**9, 0), np.float32))
    with pytest.raises(ValueError, match=r"must contain floats of shape \[n, emb"):
        read_rows(str(tmp_path / "rows.npy"))


def view(content):
    """Is pickled as an array of bytes that other arrays share."""
    function = np.ones(1).__reduce_ex__(5)[0]
    return Call(function, content, np.dtype("u1"), (len(content),), "C")


# A megabyte was copied for hours; it could also be kept ten thousand times.
def test_a_pickle_repeats_no_image(tmp_path):
    content, path = bytes(300_000), tmp_path / "set.bin"
    path.write_bytes(pickle.dumps(([view(content)] * 20_000, [True] * 10_000)))
    with bounded():
        assert len(load_pairs(str(path)).images) == 1
    path.write_bytes(pickle.dumps(([view(content), view(content)], [True])))
    with pytest.raises(ValueError, match="more bytes than the file"):
        load_pairs(str(path))


# A list takes eight bytes for each byte, twice.
def test_a_pickle_makes_no_list_of_bytes():
    with pytest.raises(ValueError, match="list of"):
        load_plain(pickle.dumps(Call(list, bytes(1000))), "set.bin")


# An attacker would have each of a million lines read the same gigabyte.
def test_records_that_overlap_are_refused(tmp_path):
    write_chain(tmp_path, 90)
    with bounded(), pytest.raises(ValueError, match="idx, line 2: records overlap"):
        opened("recordio", tmp_path)


def write_chain(folder, parts):
    """A record of many parts, and an .idx that lists it 300 times."""
    frames = [writer.frame(1, writer.image(0, 1, b""))]
    frames += [writer.frame(2, b"")] * parts + [writer.frame(3, b"abc")]
    (folder / "train.rec").write_bytes(b"".join(frames))
    (folder / "train.idx").write_text("1 0\n" * 300)


# A million lines to one damaged record of a gigabyte, or beyond the file, took days.
@pytest.mark.parametrize("place", [0, 1 << 40])
def test_few_lines_lead_to_damage(tmp_path, place):
    with open(tmp_path / "train.rec", "wb") as file:
        file.write(writer.frame(1, b"")[:4] + struct.pack("<II", 5 << 27, 1 << 28))
        file.seek(8 + (1 << 27))
        file.write(writer.frame(3, b""))
    (tmp_path / "train.idx").write_text(f"1 {place}\n" * 20_000)
    found = findings("recordio", tmp_path)[0]
    assert (found["kind"], found["count"]) == ("damaged_record", 10_001)


# A sparse image of gigabytes takes no disk, but as much memory.
def test_a_sparse_image_is_not_read(list_folder):
    path = list_folder / "images/13.png"
    os.truncate(path, 3 << 30)
    words = "13.png must have at most 134,217,728 bytes"
    pictures = Pictures(lambda images: images[:, 0, 0], build("none", SIZE), 8)
    with bounded():
        with pytest.raises(ValueError, match=words):
            list(load("image_list", list_folder, batch_size=5, image_size=SIZE))
        with pytest.raises(ValueError, match=words):
            list(pictures.rows([str(path)]))
        assert words in findings("image_list", list_folder)[0]["first"][0]["detail"]
        finder = FaceFinder("", 16, np.zeros((1, 5, 2)))
        assert words in next(finder.map(lambda _, photo, __: photo, [str(path)]))


# Pillow kept each segment of a JPEG, in 33 times its size. Before 13, it copied the
# same bytes for each entry of EXIF data: a photograph of 125 KB took 1.3 GB in /faces.
@pytest.mark.filterwarnings("ignore:Tag data")
def test_an_image_of_many_segments_takes_little_memory(list_folder):
    content = b"\xff\xd8" + b"\xff\xe5\0\2" * (4 << 20)
    (list_folder / "images/13.png").write_bytes(content)
    exif = b"\xff\xd8\xff\xe1\xea\x72Exif\0\0MM\0*\0\0\0\x08\x13\x88"
    exif += b"".join(struct.pack(">2H2I", k, 7, 60_000, 8) for k in range(5000))
    exif += tf.io.encode_jpeg([[[0]]]).numpy()[2:]
    with bounded():
        assert orientation(content) == orientation(exif) == 1
        assert findings("image_list", list_folder)[0]["count"] == 1


# An image of 20 MB in 256 lines was in memory 256 times.
def test_an_image_with_many_lines_is_read_in_small_blocks(list_folder):
    os.truncate(list_folder / "images/13.png", 20 << 20)
    (list_folder / "label.txt").write_text("images/13.png 0\n" * 100)
    data = load("image_list", list_folder, batch_size=100, image_size=SIZE)
    blocks = [len(one["index"]) for one in data.source.blocks(100, FILE_ORDER)]
    assert sum(blocks) == 100 and max(blocks) == 3
    assert [len(labels) for _, labels in data] == [100]


# The check goes on after each fault: 100,000 lines to a megabyte of parts took hours.
def test_a_chain_of_parts_is_not_followed_again_and_again(tmp_path):
    write_chain(tmp_path, 4000)
    with bounded():
        found = findings("recordio", tmp_path)[0]
    assert found["count"] == 300 and "at most 100 parts" in found["first"][0]["detail"]


# One line made the check read all of the disk, and list the names of its images.
def test_a_list_does_not_lead_the_check_out_of_its_folder(tmp_path, picture):
    (tmp_path / "in").mkdir()
    for name in ("x.png", "in/y.png", "private.png"):
        (tmp_path / name).write_bytes(picture(0, len(name)))
    (tmp_path / "in" / "label.txt").write_text("y.png 0\n../x.png 0\n")
    assert findings("image_list", tmp_path / "in") == []


# A name of 64 KB took ten seconds wherever a message shows it: this one, 17 minutes.
@pytest.mark.parametrize("piece", ["{{", "[Op:", "?id=", " "])
def test_long_names_are_shown_at_once(piece):
    name = f"oss://{piece * (640_000 // len(piece))}x"
    error = tf.errors.NotFoundError(None, None, name)
    with bounded():
        reason(error)
        cli.shown(str(error))
        with pytest.raises(SystemExit):
            cli.main(mock.Mock(side_effect=error), argv=[])


# As objects of Python, each of these takes ten to thirty times the size of the file.
def test_files_that_grow_in_memory_are_refused(tmp_path):
    path = str(tmp_path / "results.json")
    for count, most in [(11, "33,554,432 bytes"), (3, "2,097,152 values")]:
        pathlib.Path(path).write_bytes(b"[" + b"{}," * (count << 20) + b"0]")
        with pytest.raises(ValueError, match=f"must have at most {most}"):
            files.read_json(path)
    pathlib.Path(path).write_bytes(b'{"":' * 100 + b"0" + b"}" * 100)
    with pytest.raises(ValueError, match="must be nested at most 32 deep"):
        files.read_json(path)
    pathlib.Path(path).write_bytes(b"PK\1\2" * 65_537)
    with pytest.raises(ValueError, match="it has too many members"):
        torch_files.load(path)
    header = struct.pack("<Q", 60 << 20)
    header += struct.pack("<I", tfrecord.masked_checksum(header))
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(61 << 20)
    with pytest.raises(ValueError, match="record 0, must have at most 50,331,648"):
        list(tfrecord.read_records(path))
    # As objects, 48 MB of tiny features took a gigabyte.
    with pytest.raises(ValueError, match="more than 10,000 features and values"):
        tfrecord.parse_example(b"\x0a\x05\x0a\x03\x0a\x01a" * 150_000)
    image = bytes(2 << 20)
    example = tfrecord.encode_example(image, b"png", 1)
    assert tfrecord.parse_example(example) == (image, 1)
    with pytest.raises(ValueError, match="more than 267151 opcodes"):
        load_plain(b"\x80\4" + b"]" * 600_000 + b"." + bytes(0x7A0000), path)


# An image of 20 MB with a hundred spellings of its name took 2 GB.
def test_an_image_with_many_names_is_kept_once(tmp_path, picture):
    (tmp_path / "a.png").write_bytes(picture(0, 0))
    names = [f"{'./' * number}a.png" for number in range(8)]
    lines = [f"{first} {second} 1\n" for first, second in itertools.pairwise(names)]
    (tmp_path / "pairs.txt").write_text("".join(lines))
    pairs = load_pairs(str(tmp_path / "pairs.txt"))
    assert len(pairs.images) == 8 and len(set(map(id, pairs.images))) == 1
