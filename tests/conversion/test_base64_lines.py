"""Lines of base64 text: both column orders, and everything that is wrong with them."""

import base64

import pytest

from plsc_tf.data.readers import base64_text

TEXT = base64.b64encode(bytes(range(100)))


@pytest.mark.parametrize("line", [TEXT + b"\t12", b"12\t" + TEXT])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_both_column_orders(line, end):
    assert base64_text.parse_line(line + end) == (TEXT, 12)


def test_the_order_may_be_given():
    assert base64_text.parse_line(b"1234\t5678", label_first=True) == (b"5678", 1234)
    assert base64_text.parse_line(b"1234\t5678", label_first=False) == (b"1234", 5678)
    # PLSC's documented order, if both columns are digits, which no image is.
    assert base64_text.parse_line(b"1234\t5678") == (b"1234", 5678)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "a tab and a label. Received: ''"),
        (TEXT, "a tab and a label"),
        (TEXT + b" 3", "a tab and a label"),
        (TEXT + b"\t3\t4", "a tab and a label"),
        (TEXT + b"\tcat", "a tab and a label"),
        (TEXT + b"\t-3", "a tab and a label"),
        (TEXT + b"\t1_0", "a tab and a label"),
        (TEXT + b"\t" + b"9" * 30, "expected a label, a whole"),
        (b"\t3", "expected an image in base64"),
        (TEXT[:-1] + b"\t3", "multiple of 4"),
        (b"\xff\x00A\t3", r"Received: '\\\\xff\\x00A'"),
    ],
)
def test_wrong_lines_are_refused(line, words):
    with pytest.raises(ValueError, match=words):
        base64_text.parse_line(line)


def test_decoding_is_strict():
    assert base64_text.decode(TEXT) == bytes(range(100))
    for wrong in (b"AAA", b"AA=A", b"A A=", b"A-_A", b""):
        with pytest.raises(ValueError, match="image is|expected base64"):
            base64_text.decode(wrong)


def blocks(path, data, size):
    path.write_bytes(data)
    return list(base64_text.read_blocks(str(path), size))


@pytest.mark.parametrize("size", [1, 150, 1 << 20])
@pytest.mark.parametrize("label_first", [False, True])
@pytest.mark.parametrize("last", [b"", b"\n", b"\n\n"])
def test_blocks_hold_every_line_once(tmp_path, size, label_first, last):
    rows = [(TEXT[: 4 * k], k * 7) for k in range(1, 30)]
    lines = [
        b"%d\t%s" % (label, text) if label_first else b"%s\t%d" % (text, label)
        for text, label in rows
    ]
    found = blocks(tmp_path / "part", b"\n".join(lines) + last, size)
    both = [row for b in found for row in zip(b.texts, b.labels, strict=True)]
    assert both == rows
    assert [number for b in found for number in b.numbers] == list(range(1, 30))


def test_empty_lines_marks_and_windows_ends_are_left_out(tmp_path):
    data = b"\xef\xbb\xbf%s\t1\r\n\r\n\n%s\t02\r\n" % (TEXT, TEXT)
    (block,) = blocks(tmp_path / "part", data, 1 << 20)
    assert block.texts == [TEXT, TEXT]
    assert (block.labels, block.numbers) == ([1, 2], [1, 4])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([TEXT + b"\t1", TEXT], "part, line 2: expected an image in base64"),
        ([TEXT + b"\t1", b"1\t" + TEXT], "part, line 2: expected a label"),
        ([TEXT + b"\t1"] * 40 + [b"1\t" + TEXT], "part, line 41: expected a label"),
        ([TEXT + b"\t1"] * 40 + [TEXT[:-1] + b"\t1"], "part, line 41: .*multiple of 4"),
        ([TEXT + b"\t1"] * 40 + [TEXT + b"\t\t1"], "part, line 41: expected an image"),
        ([b"\x89PNG"], "part, line 1: expected an image in base64"),
    ],
)
def test_errors_name_file_and_line(tmp_path, lines, words):
    with pytest.raises(ValueError, match=words):
        blocks(tmp_path / "part", b"\n".join(lines), 256)
