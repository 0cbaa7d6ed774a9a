"""PLSC's base64 part files as bytes: lines of image and label, in either column order.

PLSC's documentation and the output of its tool have `base64<TAB>label`, while the
tool itself reads `label<TAB>base64`.
"""

from __future__ import annotations

import binascii
import dataclasses
import string
from collections.abc import Iterator

from plsc_tf.storage import files

_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
# Lines that decide on a file's column order.
_DECIDING_LINES = 16
_MAX_LINE_BYTES = 64 << 20
_BOM = b"\xef\xbb\xbf"
_MAX_LABEL = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, without the empty ones.

    Attributes:
        data: the bytes that were read.
        starts: where each line begins in `data`.
        ends: where it ends, before its end-of-line characters.
        cuts: where its tab is.
        labels: one int per line.
        numbers: of the lines, from 1.
        label_first: whether the label stands before the tab.
        offset: of the end of the lines in the file.
        next_number: of the line that follows.
    """

    data: bytes
    starts: list[int]
    ends: list[int]
    cuts: list[int]
    labels: list[int]
    numbers: list[int]
    label_first: bool
    offset: int
    next_number: int

    def text(self, row: int) -> bytes:
        """Returns the base64 text of a line."""
        if self.label_first:
            return self.data[self.cuts[row] + 1 : self.ends[row]]
        return self.data[self.starts[row] : self.cuts[row]]


def parse_line(line: bytes, label_first: bool | None = None) -> tuple[bytes, int]:
    """Returns the base64 text, not decoded, and the label of a line.

    Args:
        line: with or without its end-of-line characters.
        label_first: the column order; None finds it out from the line.

    Raises:
        ValueError: it is no such line; what is wrong with it.
    """
    line = line.rstrip(b"\r\n")
    first, tab, second = line.partition(b"\t")
    if not tab or b"\t" in second:
        raise ValueError(f"{_EXPECTED} Received: {_shown(line)}.")
    if label_first is None:
        orders = _orders_of(line)
        if len(orders) > 1:
            raise ValueError(_AMBIGUOUS)
        label_first = orders[0]
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
        ValueError: it is no base64.
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


def column_order(path: str) -> bool:
    """Whether the label stands first in a file, from its first lines.

    Raises:
        ValueError: the lines are none of base64 text, or do not agree.
    """
    found, ambiguous = None, None
    size = files.size(path)
    data, stop = _read_lines(path, 0, size, 1 << 20, 1) if size else (b"", 0)
    lines = data[:stop].removeprefix(_BOM).splitlines()
    for number, line in enumerate(lines[:_DECIDING_LINES], 1):
        if not line:
            continue
        try:
            orders = _orders_of(line)
        except ValueError as error:
            raise _line_error(path, number, error) from None
        if len(orders) > 1:
            ambiguous = ambiguous or number
        elif found not in (None, orders[0]):
            raise ValueError(
                f"{path}, line {number}: the label is in another column than in the "
                "lines before. Write all lines in one order."
            )
        else:
            found = orders[0]
    if found is None and ambiguous:
        raise _line_error(path, ambiguous, ValueError(_AMBIGUOUS))
    return bool(found)


def read_blocks(
    path: str, block_bytes: int, offset: int = 0, number: int = 1
) -> Iterator[Block]:
    """Yields the lines of a file in blocks; the base64 text itself is not looked at.

    Args:
        path: of the file, on any store.
        block_bytes: about what is read at a time.
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
        scan = _Scan(data, label_first, number)
        try:
            scan.run(len(_BOM) if not offset and data.startswith(_BOM) else 0, stop)
        except ValueError as error:
            raise _line_error(path, scan.number, error) from None
        offset, number = offset + stop, scan.number
        yield scan.block(offset)


def count_lines(path: str, block_bytes: int = 1 << 22) -> int:
    """Counts the lines of a file that are not empty; raises as `read_blocks`."""
    return sum(len(block.labels) for block in read_blocks(path, block_bytes))


class _Scan:
    """Finds the lines of a block, their tabs and labels."""

    def __init__(self, data, label_first, number):
        self.number = number
        self._data = data
        self._label_first = label_first
        self._found = ([], [], [], [], [])

    def block(self, offset):
        """The `Block` of what was found."""
        starts, ends, cuts, labels, numbers = self._found
        return Block(
            self._data,
            starts,
            ends,
            cuts,
            labels,
            numbers,
            self._label_first,
            offset,
            self.number,
        )

    def run(self, at, stop):
        """Reads the lines of `[at, stop)`; `number` counts them."""
        data, label_first = self._data, self._label_first
        starts, ends, cuts, labels, numbers = self._found
        while at < stop:
            end = data.find(b"\n", at, stop)
            end = following = stop if end < 0 else end
            if end > at and data[end - 1] == 13:
                end -= 1
            if end > at:
                if label_first:
                    cut = data.find(b"\t", at, end)
                    text, label = (cut + 1, end), data[at : max(cut, at)]
                else:
                    cut = data.rfind(b"\t", at, end)
                    text, label = (at, cut), data[cut + 1 : end]
                if cut < 0 or data.find(b"\t", *text) >= 0:
                    raise ValueError(f"{_EXPECTED} Received: {_shown(data[at:end])}.")
                labels.append(parse_label(label))
                if text[0] == text[1] or (text[1] - text[0]) % 4:
                    check_text(data[slice(*text)])
                starts.append(at)
                ends.append(end)
                cuts.append(cut)
                numbers.append(self.number)
            self.number += 1
            at = following + 1


def _read_lines(path, offset, size, block_bytes, number):
    """Returns bytes from `offset` on and where their last whole line ends."""
    while True:
        stop = min(offset + block_bytes, size)
        length = stop - offset
        data = b"".join(files.open_read(path, max(length, 1), offset, stop))
        end = length if stop == size else data.rfind(b"\n") + 1
        if end:
            return data, end
        if length >= _MAX_LINE_BYTES:
            raise ValueError(
                f"{path}, line {number}: no end of a line in {length:,} bytes. "
                "Expected one image per line, in base64."
            )
        block_bytes = min(2 * length, _MAX_LINE_BYTES)


_EXPECTED = "expected an image in base64, a tab and a label."
_AMBIGUOUS = (
    "both columns are whole numbers: which is the label cannot be told. Expected an "
    "image in base64, a tab and a label."
)


def _orders_of(line):
    """The column orders that a line may have: (False,), (True,) or both."""
    first, tab, second = line.partition(b"\t")
    orders = tuple(
        order
        for order, label in ((False, second), (True, first))
        if tab and b"\t" not in second and label.isdigit()
    )
    if not orders:
        raise ValueError(f"{_EXPECTED} Received: {_shown(line)}.")
    return orders


def _line_error(path, number, error):
    return ValueError(f"{path}, line {number}: {error}")


def _shown(text):
    """The beginning of a text, as it can be printed."""
    shown = bytes(text[:60]).decode("ascii", "backslashreplace")
    return repr(shown) + ("..." if len(text) > 60 else "")
