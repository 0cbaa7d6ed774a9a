"""PLSC's base64 part files: the reader, and parsing and writing of their lines.

A line has an image in base64 and a label: PLSC's documentation and the output of its
tool have `base64<TAB>label`, while the tool itself reads `label<TAB>base64`.
"""

from __future__ import annotations

import binascii
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.packed import find_packed, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.storage import files

# A line may hold a large photograph.
LONGEST_LINE = 64 << 20
_BOM = b"\xef\xbb\xbf"
_MOST_DIGITS = 18
_EXPECTED = "expected an image in base64, a tab and a label."
# Lines are looked for in pieces of this size.
_PIECE_BYTES = 1 << 24
# TensorFlow takes base64 in the alphabet for addresses only, without "+" and "/"; they
# become its own two characters, which become characters of no alphabet.
_TO_URL_SAFE = bytes.maketrans(b"+/-_", b"-_!!")
_FILE_LIST = "file_list.txt"


def base64_files(
    files: Sequence[str],
    *,
    name: str = "base64_text",
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Reads base64 part files in any order; their lines are found when they are opened.

    Args:
        files: paths of the files.
        name: for messages.
        num_classes: number of classes; None means largest label + 1.
        labels_offset: subtracted from each label.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: no files, no lines, or a line that is wrong; names it.
    """
    packed, labels = find_packed(name, list(files), find_lines)
    return packed_source(
        name,
        packed,
        lambda text, number: (text.translate(_TO_URL_SAFE), 0),
        # Half the processor time of binascii's, and it holds no lock of Python's.
        parse=tf.io.decode_base64,
        labels=labels - labels_offset,
        num_classes=num_classes,
    )


def find_lines(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the images of a base64 file.

    Returns:
        first byte and number of bytes of each image's text, and its label, int64.
    """
    tables = [np.zeros((3, 0), np.int64)]
    base = 0
    for block in read_blocks(path, _PIECE_BYTES):
        table = np.array([block.firsts, block.lasts, block.labels], np.int64)
        table[1] -= table[0]
        table[0] += base
        tables.append(table)
        base = block.offset
    begins, lengths, labels = np.concatenate(tables, axis=1)
    return begins, lengths, labels


def listed_files(folder: str) -> list[str]:
    """The part files that <folder>/file_list.txt names, one on each line.

    Raises:
        FileNotFoundError: no folder, no list, or a file of the list is missing.
        ValueError: the list is empty, or names a file twice.
    """
    place = paths.join(paths.require_folder(folder), _FILE_LIST)
    try:
        names = paths.read_names(place)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {_FILE_LIST}. {paths.names_in(folder)} "
            "Expected PLSC's list of base64 part files, one name on each line."
        ) from error
    return paths.expand(names, folder, flag=f"a line of {place}")


@dataclasses.dataclass(slots=True)
class Block:
    """Whole lines of a file, without the empty ones.

    Attributes:
        data: the bytes that were read.
        label_first: whether the label is before the tab.
        offset: of the end of the lines in the file.
        next_number: of the line that follows, from 1.
        firsts: where the base64 text of each line begins in `data`.
        lasts: where it ends.
        labels: one int per line.
        numbers: of the lines.
    """

    data: bytes
    label_first: bool
    offset: int = 0
    next_number: int = 1
    firsts: list[int] = dataclasses.field(default_factory=list)
    lasts: list[int] = dataclasses.field(default_factory=list)
    labels: list[int] = dataclasses.field(default_factory=list)
    numbers: list[int] = dataclasses.field(default_factory=list)

    def text(self, row: int) -> bytes:
        """Returns the base64 text of a line."""
        return self.data[self.firsts[row] : self.lasts[row]]

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
        cut = (data.find if self.label_first else data.rfind)(b"\t", at, end)
        first, last = (cut + 1, end) if self.label_first else (at, cut)
        if cut < 0 or data.find(b"\t", first, last) >= 0:
            raise ValueError(f"{_EXPECTED} Received: {_shown(data[at:end])}.")
        label = data[at:cut] if self.label_first else data[cut + 1 : end]
        # int() itself takes blanks, signs and underscores.
        if not label.isdigit() or len(label) > _MOST_DIGITS:
            raise ValueError(f"expected a label from 0. Received: {_shown(label)}.")
        if first == last or (last - first) % 4:
            raise ValueError(
                "expected an image in base64, whose length is a multiple of 4. "
                f"Received: {_shown(data[first:last])} of {last - first} characters."
            )
        self.firsts.append(first)
        self.lasts.append(last)
        self.labels.append(int(label))
        self.numbers.append(self.next_number)


def parse_line(line: bytes, label_first: bool | None = None) -> tuple[bytes, int]:
    """Returns the base64 text, not decoded, and the label of a line.

    Args:
        line: with or without its end-of-line characters.
        label_first: the column order; None takes it from the line.

    Raises:
        ValueError: it is not such a line.
    """
    if label_first is None:
        label_first = has_label_first(line.rstrip(b"\r\n"))
    block = Block(line, label_first)
    block.find_lines(0, len(line))
    return block.text(0), block.labels[0]


def decode(text: bytes) -> bytes:
    """Returns the bytes that a base64 text stands for.

    Raises:
        ValueError: it is not base64.
    """
    try:
        if text.endswith(b"==="):  # binascii takes it, training's decoder does not
            raise binascii.Error("more padding than the last group needs")
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
    """Whether the label is first in a file, by its first line.

    Raises:
        ValueError: that is no line of an image and a label.
    """
    for number, line in paths.read_lines(path, LONGEST_LINE):
        if line := line.rstrip(b"\r"):
            try:
                return has_label_first(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    return False


def read_blocks(
    path: str, block_bytes: int, offset: int = 0, number: int = 1
) -> Iterator[Block]:
    """Yields the lines of a file in blocks; the base64 text itself is not decoded.

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
        stop = min(offset + block_bytes, size)
        data = files.read(path, offset, stop)
        end = len(data) if stop == size else data.rfind(b"\n") + 1
        if not end:
            if len(data) >= LONGEST_LINE:
                raise ValueError(
                    f"{path}, line {number}: no end of a line in {len(data):,} bytes. "
                    "Expected one image per line, in base64."
                )
            block_bytes = 2 * len(data)
            continue
        start = len(_BOM) if not offset and data.startswith(_BOM) else 0
        offset += end
        block = Block(data, label_first, offset, number)
        try:
            block.find_lines(start, end)
        except ValueError as error:
            raise ValueError(f"{path}, line {block.next_number}: {error}") from None
        number = block.next_number
        yield block


def count_lines(path: str, block_bytes: int = 1 << 22) -> int:
    """Counts the lines of a file that are not empty; raises as `read_blocks`."""
    return sum(len(block.labels) for block in read_blocks(path, block_bytes))


def _shown(text):
    """The beginning of a text, as it can be printed."""
    shown = bytes(text[:60]).decode("ascii", "backslashreplace")
    return repr(shown) + ("..." if len(text) > 60 else "")
