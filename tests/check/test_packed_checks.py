"""The data check of record files: it continues after damaged records."""

import base64
import os
import struct

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.images import encode
from plsc_tf.data.readers.base64_text import find_lines
from plsc_tf.data.readers.tfrecord import find_records
from tests.check.conftest import pixels
from tests.check.test_checks import counts, places, run
from tests.conversion import drawn
from tests.data import recordio_writer

PICTURES = [encode(pixels(k)) for k in range(6)]
LABELS = [0, 1, 2, 0, 1, 2]


@pytest.fixture
def records(tmp_path):
    """Two TFRecord files of three pictures; returns the folder and a record's size."""
    drawn.write_records(tmp_path, list(zip(PICTURES, LABELS, strict=True)), 2)
    return tmp_path


def run_records(folder, **fields):
    return run(folder, "flowers", train_files=("*.tfrecord",), **fields)


def test_sound_records(records):
    result = run_records(records, num_classes=3)
    assert result.report["pictures"] == 6 and not counts(result)
    assert result.listing.describe(4) == f"{records}/1.tfrecord, record 1"
    assert result.report["classes"]["histogram"] == {"1": 0, "2-3": 3}


def test_a_damaged_record_does_not_hide_the_others(records):
    drawn.overwrite(records / "0.tfrecord", 60, b"\xff\xff")
    result = run_records(records)
    assert counts(result) == {
        "damaged_record": 1,
        "single_picture_classes": 1,
        # flowers has five classes.
        "empty_classes": 2,
    }
    (place,) = places(result, "damaged_record")
    assert place.startswith(f"{records}/0.tfrecord, record 0: it is damaged: its check")
    assert result.report["pictures"] == 6


def test_a_lost_frame_costs_the_rest_of_its_file_only(records):
    drawn.overwrite(records / "0.tfrecord", 0, b"\xff")
    with tf.io.TFRecordWriter(str(records / "1.tfrecord")) as writer:
        writer.write(drawn.example(PICTURES[0], 7))
        writer.write(b"no example")
        writer.write(drawn.example(b"junk", 1))
    data = (records / "1.tfrecord").read_bytes()
    (records / "1.tfrecord").write_bytes(data + data[:20])
    result = run_records(records, num_classes=2)
    found = counts(result)
    assert found["damaged_record"] == 3
    assert found["label_out_of_range"] == 1 and found["not_an_image"] == 1
    first = "\n".join(places(result, "damaged_record"))
    assert "0.tfrecord is damaged at record 0, byte 0" in first
    assert "1.tfrecord, record 1: " in first
    assert "1.tfrecord is cut off: record 3 at byte" in first


def test_base64_lines_of_both_orders(tmp_path):
    text = [base64.b64encode(data).decode() for data in PICTURES]
    (tmp_path / "file_list.txt").write_text("a\nb\n")
    (tmp_path / "a").write_text("".join(f"{text[k]}\t{LABELS[k]}\n" for k in range(3)))
    one, two = (f"{LABELS[k]}\t{text[k]}" for k in (3, 4))
    (tmp_path / "b").write_text(f"{one}\n2\tno base64!\n{two}\nx\n9\t{text[5]}")
    result = run(tmp_path, "base64_text", num_classes=3)
    expected = {"bad_line": 2, "label_out_of_range": 1, "single_picture_classes": 1}
    assert counts(result) == expected
    assert f"{tmp_path}/b, line 2: " in places(result, "bad_line")[0]
    assert f"{tmp_path}/b, line 4: " in places(result, "bad_line")[1]
    assert places(result, "label_out_of_range") == [f"{tmp_path}/b, line 5: label 9"]


def test_an_index_that_names_other_records_or_labels(tmp_path):
    # Training follows it: otherwise, a stranger's data would pass the check, and other
    # labels, or images hidden within images, would be trained.
    (tmp_path / "file_list.txt").write_text("a\n")
    (tmp_path / "a").write_bytes(base64.b64encode(PICTURES[0]) + b"\t0\n")
    (rows,) = find_lines(str(tmp_path / "a"))
    for row, found in ((rows, {}), ((*rows[:2], 1), {"wrong_index": 1})):
        np.save(tmp_path / "a.index.npy", [row])
        result = counts(run(tmp_path, "base64_text", num_classes=1))
        assert result == {"single_picture_classes": 1, **found}
    (tmp_path / "a").write_bytes(base64.b64encode(PICTURES[0]) + b"\t0\nAAAA\n")
    assert "wrong_index" in counts(run(tmp_path, "base64_text", num_classes=1))
    # Not used yet, but a copy may make it newer than the file.
    os.utime(tmp_path / "a.index.npy", (1, 1))
    assert run(tmp_path, "base64_text").report["sound"] is False
    path = str(tmp_path / "b" / "1.tfrecord")
    (tmp_path / "b").mkdir()
    drawn.write_file(path, [(PICTURES[0], 0)])
    ((begin, length),) = find_records(path)
    for label, found in (0, {}), (3_000_000, {"wrong_index": 1}):
        np.save(f"{path}.index.npy", [(begin, length, label)])
        result = counts(run(tmp_path / "b", "folder", num_classes=1))
        assert result == {"single_picture_classes": 1, **found}


def test_recordio(tmp_path):
    contents = recordio_writer.insightface([*PICTURES[:5], PICTURES[0]], LABELS)
    contents[2] = recordio_writer.image(0.5, 2, PICTURES[1])
    contents[4] = recordio_writer.image(8, 4, PICTURES[3])
    path = tmp_path / "train.rec"
    positions = recordio_writer.write(path, contents)
    drawn.overwrite(path, positions[3], b"\0")
    result = run(tmp_path, "recordio")
    assert counts(result) == {
        "damaged_record": 1,
        "label_not_whole": 1,
        "label_out_of_range": 1,
        # Pictures 1 and 6 are the same, of classes 0 and 2.
        "conflicting_labels": 2,
        "single_picture_classes": 3,
    }
    assert f"byte {positions[3]}" in places(result, "damaged_record")[0]
    assert f"{path}, record 4: label 8" in places(result, "label_out_of_range")


def test_missing_recordio_images_are_counted(tmp_path):
    contents = recordio_writer.insightface(PICTURES, LABELS)
    recordio_writer.write(tmp_path / "train.rec", contents[:4], with_idx=False)
    (place,) = places(run(tmp_path, "recordio"), "damaged_record")
    assert "number of images as 6. Received: images=3" in place


def test_idx_files(tmp_path):
    images = np.stack([pixels(k)[..., 0] for k in (0, 1, 2, 1)])
    header = struct.pack(">4i", 2051, 4, 16, 12)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(header + images.tobytes())
    labels = struct.pack(">2i", 2049, 4) + bytes([0, 1, 12, 1])
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    assert counts(run(tmp_path, "mnist")) == {
        "label_out_of_range": 1,
        "same_bytes": 1,
        "empty_classes": 8,
        "single_picture_classes": 1,
    }
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels[:-1])
    assert counts(run(tmp_path, "mnist")) == {"damaged_record": 1}


def test_cifar_binaries(tmp_path):
    planes = [pixels(k, (32, 33))[:, :32].transpose(2, 0, 1) for k in range(2)]
    rows = b"".join(bytes([k + 9]) + planes[k].tobytes() for k in range(2))
    (tmp_path / "test_batch.bin").write_bytes(rows)
    result = run(tmp_path, "cifar10", split="test")
    assert counts(result)["label_out_of_range"] == 1
    (place,) = places(result, "label_out_of_range")
    assert place.endswith(f"record 1 of {tmp_path}/test_batch.bin: label 10")
