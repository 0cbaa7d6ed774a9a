"""RecordIO: what an independent encoder wrote comes back; every fault is named."""

import os
import struct

import numpy as np
import pytest

from plsc_tf.data.load import load
from plsc_tf.data.readers.recordio import ImageFinder, recordio_source
from tests.conversion import drawn
from tests.data import recordio_writer as writer
from tests.data.conftest import opened

MAGIC = struct.pack("<I", 0xCED7230A)
LABELS = [0, 0, 1, 2, 2, 2, 1]


@pytest.fixture
def faces(tmp_path, picture):
    """(train.rec of seven faces of three people, the encoded pictures)."""
    images = [picture(label, k) for k, label in enumerate(LABELS)]
    writer.write(tmp_path / "train.rec", writer.insightface(images, LABELS))
    return tmp_path / "train.rec", images


@pytest.mark.parametrize("with_idx", [True, False])
def test_reads_what_the_encoder_wrote(faces, with_idx):
    rec, images = faces
    if not with_idx:
        rec.with_suffix(".idx").unlink()
    source = recordio_source(str(rec))
    assert (source.num_examples, source.num_classes) == (7, 3)
    np.testing.assert_array_equal(source.labels, LABELS)
    items = list(source.epoch(seed=0, epoch=0, shuffle=False))
    assert [item["image"].numpy() for item in items] == images
    assert [record.image for record in source.records(start=2)] == images[2:]
    assert "record 3 of" in source.describe(2)


def test_pixels_arrive_in_batches_of_every_data_set_of_faces(faces, picture):
    folder = faces[0].parent
    options = dict(batch_size=7, image_size=(12, 10), shuffle=False)
    ((pixels, labels),) = load("recordio", folder, **options)
    np.testing.assert_array_equal(labels, LABELS)
    np.testing.assert_array_equal(pixels[:, 1, 1, 0], [10 * k for k in LABELS])
    for name in ("ms1m", "casia"):
        np.testing.assert_array_equal(opened(name, folder).labels, LABELS)
    (folder / "label.txt").write_text("a.png 4\n")
    (folder / "a.png").write_bytes(picture(4, 0))
    assert opened("ms1m", folder).num_classes == 5


@pytest.mark.parametrize(
    "data",
    [
        MAGIC,
        b"abcd" + MAGIC + b"tail!",
        b"abcd" + MAGIC,
        MAGIC + MAGIC + b"x",
        b"abc" + MAGIC + b"not at a multiple of four",
    ],
)
def test_images_that_hold_the_magic_number(tmp_path, data):
    images = [b"first", data, b"last"]
    contents = [writer.image(0, k, image) for k, image in enumerate(images)]
    writer.write(tmp_path / "train.rec", contents)
    source = recordio_source(str(tmp_path / "train.rec"))
    assert [record.image for record in source.records()] == images
    finder = ImageFinder(str(tmp_path / "train.rec"))
    assert [finder.content(record) for record in finder.find()] == images


def test_the_order_and_the_choice_are_those_of_the_idx(tmp_path, caplog):
    contents = [writer.image(k, k, bytes([k])) for k in range(4)]
    positions = writer.write(tmp_path / "a.rec", contents)
    (tmp_path / "a.idx").write_text(f"3\t{positions[3]}\n1\t{positions[1]}\n")
    source = recordio_source(str(tmp_path / "a.rec"), labels_offset=1)
    np.testing.assert_array_equal(source.labels, [2, 0])
    assert [record.image for record in source.records()] == [b"\3", b"\1"]
    assert "are left out, because" in caplog.text  # the .idx may be cut off


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cut", r"train.rec, byte \d+: expected a record.*the file ends at byte"),
        ("magic", r"byte 40: expected the magic number 0a23d7ce, received 00000000"),
        ("long", r"byte 40: expected a record of 536870911 bytes, but the file ends"),
        ("kind", r"byte 40: expected a record's first part, received part kind 2"),
        ("labels", r"byte 40: expected a record of .* for 4294967295 labels"),
        ("nan", r"record 1 at byte 40: expected a whole number as label.*nan"),
        ("half", r"record 1 at byte 40: expected a whole number as label.*0.5"),
        ("range", r"Label 7 at record 1 of .*num_classes=3"),
        ("idx", r"train.idx, line 3: expected two whole numbers"),
        ("idx_beyond", r"byte 999999996: expected a record.*Record 2 of .*idx"),
        ("missing", r"number of images as 7. Received: images=6"),
        ("counts", r"byte 0: expected record 0 to hold the range"),
    ],
)
def test_faults_name_file_and_place(faces, change, message):
    rec, _ = faces
    idx, start = rec.with_suffix(".idx"), 40
    lines = idx.read_text().splitlines(keepends=True)
    assert lines[1] == f"1\t{start}\n"
    word = struct.unpack_from("<I", rec.read_bytes(), start + 4)[0]
    changes = {
        "magic": (start, b"\0\0\0\0"),
        "long": (start + 4, struct.pack("<I", 2**29 - 1)),
        "kind": (start + 4, struct.pack("<I", word | 2 << 29)),
        "labels": (start + 8, b"\xff" * 4),
        "nan": (start + 12, struct.pack("<f", np.nan)),
        "half": (start + 12, struct.pack("<f", 0.5)),
        "range": (start + 12, struct.pack("<f", 7)),
        "counts": (32, struct.pack("<f", -1)),
    }
    if change in changes:
        drawn.overwrite(rec, *changes[change])
    elif change == "cut":
        rec.write_bytes(rec.read_bytes()[:-30])
    else:
        others = {"idx": ["2 x\n"], "idx_beyond": ["2\t999999996\n"]}
        lines[2:3] = others.get(change, [])
        idx.write_text("".join(lines))
    with pytest.raises(ValueError, match=message):
        recordio_source(str(rec))


def test_a_record_has_a_largest_size(tmp_path):
    # Some of a sparse file, read at once, would fill the memory.
    path, length = tmp_path / "train.rec", (3 << 24) + 4
    path.write_bytes(struct.pack("<II", 0xCED7230A, length))
    os.truncate(path, 8 + length)
    with pytest.raises(ValueError, match="a record of at most 50,331,648 bytes"):
        recordio_source(str(path))


def test_missing_files_say_what_is_there(tmp_path):
    (tmp_path / "label.txt").write_text("")
    with pytest.raises(FileNotFoundError, match="has no train.rec. Found: label.txt"):
        opened("recordio", tmp_path)
    (tmp_path / "train.rec").write_bytes(b"")
    with pytest.raises(ValueError, match="train.rec has no images"):
        opened("recordio", tmp_path)


def test_other_file_systems(faces):
    import tensorflow as tf

    rec, images = faces
    for name in ("train.rec", "train.idx"):
        tf.io.gfile.copy(str(rec.with_name(name)), f"ram://faces/{name}", True)
    source = recordio_source("ram://faces/train.rec")
    assert [record.image for record in source.records()] == images
