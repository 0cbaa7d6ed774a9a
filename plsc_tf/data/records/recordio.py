"""MXNet RecordIO as bytes: framing, image headers and the index, without mxnet.

A record is a magic number and a word of 3 flag bits and 29 length bits, then the
data, filled up to a multiple of 4 bytes. Data that holds the magic number itself (at a
multiple of 4 bytes) is cut there into parts, and the reader puts it back in between.
Source: the published format of dmlc-core's recordio.h and of mxnet.recordio (IRHeader).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

from plsc_tf.data.lines import read_lines
from plsc_tf.data.records.packed_files import RandomAccessFile

MAGIC = struct.pack("<I", 0xCED7230A)
# Whole record, or the first, a middle or the last part of one.
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_FRAME = 8
# flag, label, id, id2; `flag` float labels follow when it is not 0.
_IMAGE_HEADER = struct.Struct("<IfQQ")
# What is read of a record to learn its length and its first label in one go.
_PEEK = _FRAME + _IMAGE_HEADER.size + 8
_RESYNC_BYTES = 1 << 20
_LENGTH_BITS = 2**29 - 1


# There are millions of these; frozen ones take three times as long to make.
@dataclasses.dataclass(slots=True)
class RecordSpan:
    """Where a record lies.

    Attributes:
        position: of its first frame.
        start: of its data, or of the data of its first part.
        length: bytes of its data, the magic numbers between parts included.
        end: where the next record starts.
        parts: number of frames.
        head: its first bytes, as many as an image header with one label has.
    """

    position: int
    start: int
    length: int
    end: int
    parts: int
    head: bytes


@dataclasses.dataclass(slots=True)
class ImageHeader:
    """The header of an image record.

    Attributes:
        flag: number of float labels after the header; 0: there is one, inside.
        label: the first label.
        size: bytes of header and labels; the encoded image follows.
    """

    flag: int
    label: float
    size: int


def find_record(file: RandomAccessFile, position: int) -> RecordSpan:
    """Finds a record's parts and checks all of them against the file's size.

    Raises:
        ValueError: there is no record, or it is cut off; with file and byte.
    """
    peeked = file.read(position, _PEEK)
    kind, start, length, end = _frame(file, position, peeked)
    if kind == _WHOLE:
        head = peeked[_FRAME : _FRAME + length]
        return RecordSpan(position, start, length, end, 1, head)
    if kind != _FIRST:
        expected = f"a record's first part, received part kind {kind}"
        raise _fault(file, position, expected)
    head, parts, total = file.read(start, min(length, _PEEK)), 1, length
    while kind != _LAST:
        place = end
        kind, part, length, end = _frame(file, place, file.read(place, _FRAME))
        if kind not in (_MIDDLE, _LAST):
            expected = f"a further part of the record at byte {position}, received "
            raise _fault(file, place, f"{expected}part kind {kind}")
        if len(head) < _PEEK:
            head += MAGIC + file.read(part, min(length, _PEEK))
        total += len(MAGIC) + length
        parts += 1
    head = head[: min(total, _PEEK - _FRAME)]
    return RecordSpan(position, start, total, end, parts, head)


def read_record(file: RandomAccessFile, span: RecordSpan) -> bytes:
    """Returns the data of a record, its parts joined."""
    data = file.read(span.position, span.end - span.position)
    return join_parts(data, f"{file.path}, byte {span.position}")


def join_parts(data: bytes, place: str) -> bytes:
    """Returns the data of a record.

    Args:
        data: all frames of the record.
        place: names the record for the error.

    Raises:
        ValueError: they are no frames; the file has changed since it was opened.
    """
    pieces, at = [], 0
    while at < len(data):
        if data[at : at + 4] != MAGIC or len(data) < at + _FRAME:
            raise ValueError(f"{place}: the file changed since it was opened.")
        length = struct.unpack_from("<I", data, at + 4)[0] & _LENGTH_BITS
        pieces.append(data[at + _FRAME : at + _FRAME + length])
        at += _FRAME + length + -length % 4
    return MAGIC.join(pieces)


def image_header(file: RandomAccessFile, span: RecordSpan) -> ImageHeader:
    """Reads the header of an image record.

    Raises:
        ValueError: the record is shorter than its header says.
    """
    if len(span.head) < _IMAGE_HEADER.size:
        expected = f"a record of at least {_IMAGE_HEADER.size} bytes (an image header)"
        raise _fault(file, span.position, f"{expected}, received {span.length}")
    flag, label, _, _ = _IMAGE_HEADER.unpack_from(span.head)
    size = _IMAGE_HEADER.size + 4 * flag
    if size > span.length:
        expected = f"an image header with {flag} labels, {size} bytes, within a record"
        raise _fault(file, span.position, f"{expected} of {span.length} bytes")
    if flag:
        (label,) = struct.unpack_from("<f", span.head, _IMAGE_HEADER.size)
    return ImageHeader(flag, label, size)


def header_labels(file: RandomAccessFile, span: RecordSpan) -> tuple[float, ...]:
    """Returns the labels that follow the checked header of a record."""
    flag = image_header(file, span).flag
    return struct.unpack_from(f"<{flag}f", read_record(file, span), _IMAGE_HEADER.size)


def resynchronize(file: RandomAccessFile, position: int) -> int:
    """Returns where the next record may start after a damaged one, or the file's end.

    That is where the magic number stands at a multiple of 4 bytes, before a whole
    record or a first part that ends within the file.
    """
    position += -position % 4
    while position < file.size:
        data = file.read(position, _RESYNC_BYTES)
        at = data.find(MAGIC)
        while at >= 0:
            if (position + at) % 4 == 0 and _starts_record(file, position + at):
                return position + at
            at = data.find(MAGIC, at + 1)
        # The magic number may lie across two reads; both start at a multiple of 4.
        position += max(len(data) & ~3, 4)
    return file.size


def _starts_record(file: RandomAccessFile, position: int) -> bool:
    try:
        find_record(file, position)
    except ValueError:
        return False
    return True


def index_entries(path: str) -> Iterator[tuple[int, int]]:
    """Yields (key, byte position) of each line of a .idx file.

    Raises:
        ValueError: a line that is no "key position"; with its number.
    """
    for number, line in read_lines(path, longest=80):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not all(f.isdigit() and len(f) <= 18 for f in fields):
            raise ValueError(
                f"{path}, line {number}: expected 'key position', two whole numbers "
                f"separated by a tab. Received: {line[:80]!r}. Copy the file again, or "
                "remove it: without a .idx the .rec is read through once."
            )
        yield int(fields[0]), int(fields[1])


def _frame(
    file: RandomAccessFile, position: int, data: bytes
) -> tuple[int, int, int, int]:
    """Reads a frame's 8 bytes and checks that its data lies within the file.

    Returns:
        kind of part; first byte and length of its data; where the next frame starts.
    """
    if position % 4:
        raise _fault(file, position, "a record at a multiple of 4 bytes")
    if len(data) < _FRAME:
        raise _fault(file, position, f"a record, but the file ends at byte {file.size}")
    if data[:4] != MAGIC:
        received = f"{MAGIC.hex()}, received {data[:4].hex()}"
        raise _fault(file, position, f"the magic number {received}")
    (word,) = struct.unpack_from("<I", data, 4)
    kind, length = word >> 29, word & _LENGTH_BITS
    start = position + _FRAME
    # The last record may lack the bytes that pad it.
    if start + length > file.size:
        expected = f"a record of {length} bytes, but the file ends at byte {file.size}"
        raise _fault(file, position, expected)
    if kind > _LAST:
        raise _fault(file, position, f"part kind 0 to 3, received {kind}")
    return kind, start, length, start + length + -length % 4


def _fault(file: RandomAccessFile, position: int, expected: str) -> ValueError:
    return ValueError(
        f"{file.path}, byte {position}: expected {expected}. Copy the file again; "
        "`python -m plsc_tf.check` lists all damaged records."
    )
