"""PLSC's base64 part files as bytes: lines of image and label, in either column order.

PLSC's documentation and the output of its tool have `base64<TAB>label`, while the
tool itself reads `label<TAB>base64`.
"""

from __future__ import annotations

import binascii
import dataclasses
import string
from collections.abc import Iterator

from plsc_tf.data.lines import read_lines
from plsc_tf.storage import files

_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
# A line may hold a large photograph.
LONGEST_LINE = 64 << 20
_BOM = b"\xef\xbb\xbf"
_MAX_LABEL = 2**63 - 1
_EXPECTED = "expected an image in base64, a tab and a label."


@dataclasses.dataclass(slots=True)
class Block:
    """Whole lines of a file, without the empty ones.

    Attributes:
        data: the bytes that were read.
        label_first: whether the label stands before the tab.
        offset: of the end of the lines in the file.
        next_number: of the line that follows, from 1.
        starts: where each line begins in `data`.
        ends: where it ends, before its end-of-line characters.
        cuts: where its tab is.
        labels: one int per line.
        numbers: of the lines.
    """

    data: bytes
    label_first: bool
    offset: int
    next_number: int
    starts: list[int] = dataclasses.field(default_factory=list)
    ends: list[int] = dataclasses.field(default_factory=list)
    cuts: list[int] = dataclasses.field(default_factory=list)
    labels: list[int] = dataclasses.field(default_factory=list)
    numbers: list[int] = dataclasses.field(default_factory=list)

    def text(self, row: int) -> bytes:
        """Returns the base64 text of a line."""
        if self.label_first:
            return self.data[self.cuts[row] + 1 : self.ends[row]]
        return self.data[self.starts[row] : self.cuts[row]]

    def find_lines(self, at: int, stop: int) -> None:
        """Adds the lines in `data[at:stop]`; `next_number` counts them.

        Raises:
            ValueError: the line of this number is wrong.
        """
        data = self.data
        while at < stop:
            end = data.find(b"\n", at, stop)
            end = following = stop if end < 0 else end
            if end > at and data[end - 1] == 13:
                end -= 1
            if end > at:
                self._add_line(data, at, end)
            self.next_number += 1
            at = following + 1

    def _add_line(self, data, at, end):
        if self.label_first:
            cut = data.find(b"\t", at, end)
            first, last, label = cut + 1, end, data[at : max(cut, at)]
        else:
            cut = data.rfind(b"\t", at, end)
            first, last, label = at, cut, data[cut + 1 : end]
        if cut < 0 or data.find(b"\t", first, last) >= 0:
            raise ValueError(f"{_EXPECTED} Received: {_shown(data[at:end])}.")
        self.labels.append(parse_label(label))
        if first == last or (last - first) % 4:
            check_text(data[first:last])
        self.starts.append(at)
        self.ends.append(end)
        self.cuts.append(cut)
        self.numbers.append(self.next_number)


def parse_line(line: bytes, label_first: bool | None = None) -> tuple[bytes, int]:
    """Returns the base64 text, not decoded, and the label of a line.

    Args:
        line: with or without its end-of-line characters.
        label_first: the column order; None takes it from the line.

    Raises:
        ValueError: it is not such a line.
    """
    line = line.rstrip(b"\r\n")
    if label_first is None:
        label_first = has_label_first(line)
    first, tab, second = line.partition(b"\t")
    if not tab or b"\t" in second:
        raise ValueError(f"{_EXPECTED} Received: {_shown(line)}.")
    text, label = (second, first) if label_first else (first, second)
    check_text(text)
    return text, parse_label(label)


def parse_label(text: bytes) -> int:
    """Returns the label that decimal digits spell.

    Raises:
        ValueError: it is no whole number from 0.
    """
    # int() itself takes blanks, signs and underscores, and any number of digits.
    if not text.isdigit() or len(text) > 40 or int(text) > _MAX_LABEL:
        raise ValueError(f"expected a label from 0. Received: {_shown(text)}.")
    return int(text)


def check_text(text: bytes) -> None:
    """Checks that a text is base64 in the standard alphabet, padded.

    Raises:
        ValueError: it is not.
    """
    if not text:
        raise ValueError("the image is empty: expected its bytes in base64.")
    body = text[:-2] + text[-2:].rstrip(b"=")
    if len(text) % 4 or body.translate(None, _ALPHABET):
        raise ValueError(
            "expected base64 in the alphabet A-Z a-z 0-9 + / and a length that is a "
            f"multiple of 4. Received: {_shown(text)} of {len(text)} characters."
        )


def decode(text: bytes) -> bytes:
    """Returns the bytes that a base64 text stands for.

    Raises:
        ValueError: it is not base64.
    """
    if len(text) % 4 or text.endswith(b"==="):  # which binascii does not mind
        check_text(text)
    try:
        image = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"the image is no base64: {error}.") from error
    if not image:
        raise ValueError("the image is empty: expected its bytes in base64.")
    return image


def encode_line(image: bytes, label: int) -> bytes:
    """Returns `base64<TAB>label` and the end of the line."""
    return binascii.b2a_base64(image, newline=False) + b"\t%d\n" % label


def has_label_first(line: bytes) -> bool:
    """Whether a line has the label before the image.

    The text of an image is never digits alone: JPEG, PNG and GIF files begin with
    letters.

    Raises:
        ValueError: neither column is a label.
    """
    first, _, second = line.partition(b"\t")
    if second.isdigit():
        return False
    if not first.isdigit() or b"\t" in second:
        raise ValueError(f"{_EXPECTED} Received: {_shown(line)}.")
    return True


def column_order(path: str) -> bool:
    """Whether the label stands first in a file, from its first line.

    Raises:
        ValueError: that is no line of an image and a label.
    """
    for number, line in read_lines(path, LONGEST_LINE):
        line = line.removeprefix(_BOM) if number == 1 else line
        line = line.rstrip(b"\r")
        if line:
            try:
                return has_label_first(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    return False


def read_blocks(
    path: str, block_bytes: int, offset: int = 0, number: int = 1
) -> Iterator[Block]:
    """Yields the lines of a file in blocks; the base64 text itself is not looked at.

    Args:
        path: on any store.
        block_bytes: about how many to read at a time.
        offset: where a line starts.
        number: of that line, from 1.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line that is wrong; it names file and line.
    """
    label_first = column_order(path)
    size = files.size(path)
    while offset < size:
        data, stop = _read_lines(path, offset, size, block_bytes, number)
        start = len(_BOM) if not offset and data.startswith(_BOM) else 0
        offset += stop
        block = Block(data, label_first, offset, number)
        try:
            block.find_lines(start, stop)
        except ValueError as error:
            raise ValueError(f"{path}, line {block.next_number}: {error}") from None
        number = block.next_number
        yield block


def count_lines(path: str, block_bytes: int = 1 << 22) -> int:
    """Counts the lines of a file that are not empty; raises as `read_blocks`."""
    return sum(len(block.labels) for block in read_blocks(path, block_bytes))


def _read_lines(path, offset, size, block_bytes, number):
    """Returns bytes from `offset` on and where their last whole line ends."""
    while True:
        stop = min(offset + block_bytes, size)
        data = files.read(path, offset, stop)
        end = len(data) if stop == size else data.rfind(b"\n") + 1
        if end:
            return data, end
        if len(data) >= LONGEST_LINE:
            raise ValueError(
                f"{path}, line {number}: no end of a line in {len(data):,} bytes. "
                "Expected one image per line, in base64."
            )
        block_bytes = min(2 * len(data), LONGEST_LINE)


def _shown(text):
    """The beginning of a text, as it can be printed."""
    shown = bytes(text[:60]).decode("ascii", "backslashreplace")
    return repr(shown) + ("..." if len(text) > 60 else "")
