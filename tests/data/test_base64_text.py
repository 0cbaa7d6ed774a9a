"""Base64 part files: every line once, in either column order."""

import base64

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.load import open_source
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.base64_text import base64_files, decode, listed_files
from plsc_tf.data.readers.layouts import DataRequest

SMALL = PipelineOptions(image_size=(12, 10))


@pytest.fixture
def folder(tmp_path, picture):
    """file_list.txt and two files: 5 lines with the label last, 4 with it first."""
    lines = [
        (base64.b64encode(picture(k % 3, k)), str(k % 3).encode()) for k in range(9)
    ]
    (tmp_path / "part-0").write_bytes(
        b"".join(t + b"\t" + n + b"\n" for t, n in lines[:5])
    )
    (tmp_path / "part-1").write_bytes(
        b"\r\n\r\n".join(n + b"\t" + t for t, n in lines[5:])
    )
    (tmp_path / "file_list.txt").write_text("part-0\npart-1\n")
    return tmp_path


def test_reads_the_listed_files_byte_for_byte(folder, picture):
    source = open_source("base64_text", DataRequest(str(folder)))
    assert (source.num_examples, source.num_classes) == (9, 3)
    np.testing.assert_array_equal(source.labels, np.arange(9) % 3)
    records = list(source.records())
    assert [r.image for r in records] == [picture(k % 3, k) for k in range(9)]
    assert [r.label for r in records] == [k % 3 for k in range(9)]
    assert source.describe(6) == f"record 1 of {folder}/part-1"


def test_a_file_may_be_named_by_train_files(folder):
    request = DataRequest(dataset_dir=str(folder), train_files=("part-1",))
    assert open_source("base64_text", request).num_examples == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"abcd\t1\n" * 40 + b"abc\t1", "part-0, line 41: .*multiple of 4"),
        (b"", "holds no records"),
    ],
)
def test_wrong_lines_are_named(tmp_path, text, expected):
    (tmp_path / "part-0").write_bytes(text)
    with pytest.raises(ValueError, match=expected):
        base64_files([str(tmp_path / "part-0")])


def test_text_that_is_no_base64_is_named_when_it_is_read(tmp_path, picture):
    good = base64.b64encode(picture(0, 0))
    (tmp_path / "part-0").write_bytes(good + b"\t0\nab!d\t1\n")
    source = base64_files([str(tmp_path / "part-0")])
    with pytest.raises(ValueError, match="record 1 of .*part-0: the image is not b"):
        list(Batches(source, 2, options=PipelineOptions(shuffle=False)))


@pytest.mark.parametrize(
    "text",
    [b"QUJD", b"QUI=", b"QQ==", b"QUJD====", b"QR==", b"QQ==QUJD", b"Q===", b"QU+/"]
    + [b"QU-_", b"QQ=a", b"QUJD    "],
)
def test_training_conversion_and_check_accept_the_same_text(tmp_path, text):
    path = tmp_path / "part-0"
    path.write_bytes(text + b"\t0\n")
    source = base64_files([str(path)])
    entry = {"index": tf.constant([0], tf.int64)}
    try:
        image = decode(text)
    except ValueError:
        with pytest.raises(ValueError, match="the image is not base64"):
            source.read(entry)
    else:
        assert source.read(entry)["image"].numpy().tolist() == [image]


def test_lists_that_are_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="no .*/file_list.txt. Found: nothing"):
        listed_files(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"no {tmp_path}/a.txt or a.txt. Fou"):
        listed_files(str(tmp_path), "a.txt")
    with pytest.raises(FileNotFoundError, match="There is no ram://h/a.txt. Found: "):
        listed_files(str(tmp_path), "ram://h/a.txt")
    (tmp_path / "file_list.txt").write_text(" \n")
    with pytest.raises(ValueError, match="file_list.txt is empty"):
        listed_files(str(tmp_path))
    (tmp_path / "file_list.txt").write_text("part-0\n")
    with pytest.raises(FileNotFoundError, match="part-0"):
        listed_files(str(tmp_path))
