"""Base64 part files: every line once, in either column order, and all that is wrong."""

import base64

import numpy as np
import pytest

from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers import base64_text
from tests.data.conftest import opened


@pytest.fixture
def folder(tmp_path, picture):
    """file_list.txt and two files: 5 lines with the label last, 4 with it first."""
    pairs = [(base64.b64encode(picture(k % 3, k)), k % 3) for k in range(9)]
    last = b"".join(b"%b\t%d\n" % pair for pair in pairs[:5])
    first = b"\r\n\r\n".join(b"%d\t%b" % pair[::-1] for pair in pairs[5:])
    (tmp_path / "part-0").write_bytes(last)
    (tmp_path / "part-1").write_bytes(first)
    (tmp_path / "file_list.txt").write_text("part-0\npart-1\n")
    return tmp_path


def test_reads_the_listed_files_byte_for_byte(folder, picture):
    source = opened("base64_text", folder)
    assert (source.num_examples, source.num_classes) == (9, 3)
    np.testing.assert_array_equal(source.labels, np.arange(9) % 3)
    records = list(source.records())
    assert [r.image for r in records] == [picture(k % 3, k) for k in range(9)]
    assert [r.label for r in records] == [k % 3 for k in range(9)]
    assert source.describe(6) == f"record 1 of {folder}/part-1"


def test_a_file_may_be_named_by_train_files(folder):
    assert opened("base64_text", folder, train_files=("part-1",)).num_examples == 4


def test_lines_are_checked_at_once_and_base64_when_it_is_read(tmp_path, picture):
    good = base64.b64encode(picture(0, 0))
    (tmp_path / "part-0").write_bytes(good + b"\t0\nab!d\t1\n")
    source = base64_text.base64_files([str(tmp_path / "part-0")])
    with pytest.raises(ValueError, match="record 1 of .*part-0: the image is not b"):
        list(Batches(source, 2, options=PipelineOptions(shuffle=False)))
    (tmp_path / "part-0").write_bytes(good + b"\t0\nabc\t1\n")
    with pytest.raises(ValueError, match="part-0, line 2: .*multiple of 4"):
        base64_text.base64_files([str(tmp_path / "part-0")])


@pytest.mark.parametrize("text", [b"QUJD", b"QUI=", b"QQ==", b"QR==", b"QU+/"])
def test_base64_is_decoded(text):
    assert base64_text.decode(text) == base64.b64decode(text, validate=True)


@pytest.mark.parametrize(
    "text",
    [b"QUJD====", b"QQ==QUJD", b"Q===", b"QU-_", b"QQ=a", b"QUJD    "]
    + [b"QUJ", b"QQ=Q", b"Q Q="],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="the image is not base64"):
        base64_text.decode(text)


def test_lists_that_are_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match="no .*/file_list.txt. Found: nothing"):
        base64_text.listed_files(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"no {tmp_path}/a.txt or a.txt. Fou"):
        base64_text.listed_files(str(tmp_path), "a.txt")
    with pytest.raises(FileNotFoundError, match="There is no ram://h/a.txt. Found: "):
        base64_text.listed_files(str(tmp_path), "ram://h/a.txt")
    (tmp_path / "file_list.txt").write_text(" \n")
    with pytest.raises(ValueError, match="file_list.txt is empty"):
        base64_text.listed_files(str(tmp_path))
    (tmp_path / "file_list.txt").write_text("part-0\n")
    with pytest.raises(FileNotFoundError, match="part-0"):
        base64_text.listed_files(str(tmp_path))


TEXT = base64.b64encode(bytes(range(100)))


def test_two_columns_of_digits_are_in_plscs_documented_order():
    assert base64_text.parse_line(b"1234\t5678") == (b"1234", 5678)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        TEXT,
        TEXT + b" 3",
        TEXT + b"\t3\t4",
        TEXT + b"\tcat",
        TEXT + b"\t-3",
        TEXT + b"\t1_0",
        TEXT + b"\t" + b"9" * 30,
        b"\t3",
        TEXT[:-1] + b"\t3",
        b"\xff\x00A\t3",
    ],
)
def test_wrong_lines_are_refused(line):
    words = "expected an image in base64.*a tab and a label, a whole.* Received: text="
    with pytest.raises(ValueError, match=words):
        base64_text.parse_line(line)


@pytest.mark.parametrize("label_first", [False, True])
@pytest.mark.parametrize("last", [b"", b"\n", b"\n\n"])
def test_every_line_is_read_once_and_from_any_position(tmp_path, label_first, last):
    rows = [(TEXT[: 4 * k], k * 7) for k in range(1, 30)]
    lines = [
        b"%d\t%s" % (label, text) if label_first else b"%s\t%d" % (text, label)
        for text, label in rows
    ]
    (tmp_path / "part").write_bytes(b"\n".join(lines) + last)
    path = str(tmp_path / "part")
    found = list(base64_text.read_lines(path))
    assert [base64_text.parse_line(line) for _, _, line in found] == rows
    assert [number for number, _, _ in found] == list(range(1, 30))
    for number, end, _ in found:
        assert list(base64_text.read_lines(path, end, number + 1)) == found[number:]
    data = (tmp_path / "part").read_bytes()
    places = base64_text.find_lines(path)
    assert [(data[b : b + n], label) for b, n, label in places] == rows


def test_empty_lines_marks_and_windows_ends_are_left_out(tmp_path):
    data = b"\xef\xbb\xbf%s\t1\r\n\r\n\n02\t%s\r\n" % (TEXT, TEXT)
    (tmp_path / "part").write_bytes(data)
    lines = list(base64_text.read_lines(str(tmp_path / "part")))
    parsed = [base64_text.parse_line(line) for _, _, line in lines]
    assert parsed == [(TEXT, 1), (TEXT, 2)]
    assert [number for number, _, _ in lines] == [1, 4]
    begins = [begin for begin, _, _ in base64_text.find_lines(str(tmp_path / "part"))]
    assert [data[begin:].startswith(TEXT) for begin in begins] == [True, True]
