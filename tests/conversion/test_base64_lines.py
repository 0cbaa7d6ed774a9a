"""Lines of base64 text: both column orders, and everything that is wrong with them."""

import base64

import pytest

from plsc_tf.data.readers import base64_text

TEXT = base64.b64encode(bytes(range(100)))


def test_two_columns_of_digits_are_in_plscs_documented_order():
    assert base64_text.parse_line(b"1234\t5678") == (b"1234", 5678)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "a tab and a label. Received: ''"),
        (TEXT, "a tab and a label"),
        (TEXT + b" 3", "a tab and a label"),
        (TEXT + b"\t3\t4", "a tab and a label"),
        (TEXT + b"\tcat", "expected a label, a whole"),
        (TEXT + b"\t-3", "expected a label, a whole"),
        (TEXT + b"\t1_0", "expected a label, a whole"),
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
    begins, lengths, labels = base64_text.find_lines(path)
    data = (tmp_path / "part").read_bytes()
    places = zip(begins, lengths, labels, strict=True)
    assert [(data[b : b + n], label) for b, n, label in places] == rows


def test_empty_lines_marks_and_windows_ends_are_left_out(tmp_path):
    data = b"\xef\xbb\xbf%s\t1\r\n\r\n\n02\t%s\r\n" % (TEXT, TEXT)
    (tmp_path / "part").write_bytes(data)
    lines = list(base64_text.read_lines(str(tmp_path / "part")))
    parsed = [base64_text.parse_line(line) for _, _, line in lines]
    assert parsed == [(TEXT, 1), (TEXT, 2)]
    assert [number for number, _, _ in lines] == [1, 4]
    begins, _, _ = base64_text.find_lines(str(tmp_path / "part"))
    assert [data[begin:].startswith(TEXT) for begin in begins] == [True, True]
