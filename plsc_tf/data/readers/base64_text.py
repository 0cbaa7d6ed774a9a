"""Reads and writes PLSC's base64 part files.

Each line has an image in base64 and a label. PLSC's documentation and the output of
its tool have `base64<TAB>label`, but the tool itself reads `label<TAB>base64`.
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

# A line may contain a large photograph.
LONGEST_LINE = 64 << 20
_BOM = b"\xef\xbb\xbf"
_MOST_DIGITS = 18
_EXPECTED = "expected an image in base64, a tab and a label."
# Number of bytes to read at a time when locating lines.
_PIECE_BYTES = 1 << 24
# TensorFlow decodes only URL-safe base64, so "+" and "/" are replaced with "-" and "_".
# "-" and "_" in the text are replaced with "!", which is invalid in both alphabets.
_TO_URL_SAFE = bytes.maketrans(b"+/-_", b"-_!!")
_FILE_LIST = "file_list.txt"


def base64_files(
    files: Sequence[str],
    *,
    name: str = "base64_text",
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Opens base64 part files for random access; reads them once to locate the lines.

    Args:
        files: paths of the files.
        name: name for messages.
        num_classes: number of classes; None means the largest label + 1.
        labels_offset: number to subtract from each label.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: there are no files or no lines, or a line is invalid; the message
            names the line.
    """
    packed, labels = find_packed(name, list(files), find_lines)
    return packed_source(
        name,
        packed,
        lambda text, number: (text.translate(_TO_URL_SAFE), 0),
        # It takes half the CPU time of binascii and does not hold Python's GIL.
        parse=tf.io.decode_base64,
        labels=labels - labels_offset,
        num_classes=num_classes,
    )


def find_lines(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Locates the images in a base64 file.

    Returns:
        The position and length of each image's base64 text in bytes, and the labels;
        int64 `[n]` each.
    """
    tables = [np.zeros((3, 0), np.int64)]
    for block in read_blocks(path, _PIECE_BYTES):
        lengths = list(map(len, block.texts))
        tables.append(np.array([block.begins, lengths, block.labels], np.int64))
    begins, lengths, labels = np.concatenate(tables, axis=1)
    return begins, lengths, labels


def listed_files(folder: str) -> list[str]:
    """Returns the part files listed in <folder>/file_list.txt, one per line.

    Raises:
        FileNotFoundError: the folder, the list or a file in the list does not exist.
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
    return paths.expand(names, folder, flag=place)


@dataclasses.dataclass(slots=True)
class Block:
    """Consecutive complete lines of a file; empty lines are left out.

    Attributes:
        offset: position in the file of the end of the last line.
        next_number: number of the next line, from 1.
        texts: base64 text of each line.
        begins: position in the file of each text.
        labels: label of each line.
        numbers: number of each line in the file.
    """

    offset: int
    next_number: int
    texts: list[bytes] = dataclasses.field(default_factory=list)
    begins: list[int] = dataclasses.field(default_factory=list)
    labels: list[int] = dataclasses.field(default_factory=list)
    numbers: list[int] = dataclasses.field(default_factory=list)

    def add_lines(self, lines: bytes, label_first: bool) -> None:
        """Adds complete lines and advances `offset` and `next_number`.

        Raises:
            ValueError: line `next_number` is invalid.
        """
        for line in lines.removesuffix(b"\n").split(b"\n"):
            if line.rstrip(b"\r"):
                text, label = parse_line(line, label_first)
                self.texts.append(text)
                before = line.index(b"\t") + 1 if label_first else 0
                self.begins.append(self.offset + before)
                self.labels.append(label)
                self.numbers.append(self.next_number)
            self.offset += len(line) + 1
            self.next_number += 1


def parse_line(line: bytes, label_first: bool | None = None) -> tuple[bytes, int]:
    """Returns a line's base64 text, without decoding it, and its label.

    Args:
        line: the line, with or without end-of-line characters.
        label_first: whether the label precedes the tab; None detects it.

    Raises:
        ValueError: the line is invalid.
    """
    line = line.rstrip(b"\r\n")
    if label_first is None:
        label_first = has_label_first(line)
    if label_first:
        label, tab, text = line.partition(b"\t")
    else:
        text, tab, label = line.rpartition(b"\t")
    if not tab or b"\t" in text:
        raise ValueError(f"{_EXPECTED} Received: {_shown(line)}.")
    # Check the digits, because int() accepts blanks, signs and underscores.
    if not label.isdigit() or len(label) > _MOST_DIGITS:
        raise ValueError(
            "expected a label, a whole number of at most "
            f"{_MOST_DIGITS} digits. Received: {_shown(label)}."
        )
    if not text or len(text) % 4:
        raise ValueError(
            "expected an image in base64, whose length is a multiple of 4. "
            f"Received: {_shown(text)} of {len(text)} characters."
        )
    return text, int(label)


def decode(text: bytes) -> bytes:
    """Returns the image encoded in a base64 text.

    Raises:
        ValueError: the text is not base64 or is empty.
    """
    try:
        if text.endswith(b"==="):  # binascii accepts it; TensorFlow's decoder does not.
            raise binascii.Error("it ends in more than two '='")
        image = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"the image is not base64: {error}.") from error
    if not image:
        raise ValueError("the image is empty: expected its bytes in base64.")
    return image


def encode_line(image: bytes, label: int) -> bytes:
    """Returns the line `base64<TAB>label`, with its newline."""
    return binascii.b2a_base64(image, newline=False) + b"\t%d\n" % label


def has_label_first(line: bytes) -> bool:
    """Returns whether a line has the label before the image.

    The text of an image is never all digits, because the base64 text of JPEG, PNG and
    GIF files begins with a letter or "/".

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
    """Returns whether the labels come first in a file, judging by its first line.

    Raises:
        ValueError: the first line does not have an image and a label.
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
    """Yields the lines of a file in blocks, without decoding the base64 text.

    Args:
        path: path of the file, on any store.
        block_bytes: approximate number of bytes to read at a time.
        offset: position of the first line to read.
        number: number of that line, from 1.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line is invalid; the message names the file and the line.
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
                    f"{path}, line {number}: expected one image per line, in base64. "
                    f"Received: {len(data):,} bytes without a newline."
                )
            block_bytes = 2 * len(data)
            continue
        start = len(_BOM) if not offset and data.startswith(_BOM) else 0
        block = Block(offset + start, number)
        try:
            block.add_lines(data[start:end], label_first)
        except ValueError as error:
            raise ValueError(f"{path}, line {block.next_number}: {error}") from None
        offset, number = min(block.offset, size), block.next_number
        yield block


def _shown(text):
    """Returns the beginning of a text in printable form."""
    shown = bytes(text[:60]).decode("ascii", "backslashreplace")
    return repr(shown) + ("..." if len(text) > 60 else "")
