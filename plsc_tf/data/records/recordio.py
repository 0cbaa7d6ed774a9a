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
from plsc_tf.storage import files

MAGIC = struct.pack("<I", 0xCED7230A)
# Whole record, or the first, a middle or the last part of one.
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_FRAME = 8
# flag, label, id, id2; `flag` float labels follow when it is not 0.
_IMAGE_HEADER = struct.Struct("<IfQQ")
# What is read of a record to learn its length and its first label in one go.
_PEEK = _FRAME + _IMAGE_HEADER.size + 8
_RESYNC_BYTES = 1 << 20


class RecordFile:
    """Reads ranges of a file, from any thread; nothing beyond its end is asked for.

    Args:
        path: of the file, on any store.
    """

    def __init__(self, path: str):
        self.path = path
        self.size = files.size(path)
        self._file = files.open_random(path)

    def read(self, position: int, length: int) -> bytes:
        """Returns the bytes there, fewer at the end of the file."""
        length = max(0, min(length, self.size - position))
        return self._file.read(position, length)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


# There are millions of these; frozen ones take three times as long to make.
@dataclasses.dataclass(slots=True)
class Part:
    """One frame: its kind, where its data lies, and where the next frame starts."""

    kind: int
    start: int
    length: int
    end: int


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
        id: number of the image.
        size: bytes of header and labels; the encoded image follows.
    """

    flag: int
    label: float
    id: int
    size: int


def find_record(file: RecordFile, position: int) -> RecordSpan:
    """Finds a record's parts and checks all of them against the file's size.

    Raises:
        ValueError: there is no record, or it is cut off; with file and byte.
    """
    peeked = file.read(position, _PEEK)
    part = _frame(file, position, peeked)
    if part.kind == _WHOLE:
        head = peeked[_FRAME : _FRAME + part.length]
        return RecordSpan(position, part.start, part.length, part.end, 1, head)
    if part.kind != _FIRST:
        raise _fault(
            file, position, f"a record's first part, received part kind {part.kind}"
        )
    head, length, count = file.read(part.start, min(part.length, _PEEK)), part.length, 1
    start = part.start
    while part.kind != _LAST:
        where = part.end
        part = _frame(file, where, file.read(where, _FRAME))
        if part.kind not in (_MIDDLE, _LAST):
            raise _fault(
                file,
                where,
                f"a further part of the record at byte {position}, received part "
                f"kind {part.kind}",
            )
        if len(head) < _PEEK:
            head += MAGIC + file.read(part.start, min(part.length, _PEEK))
        length += len(MAGIC) + part.length
        count += 1
    head = head[: min(length, _PEEK - _FRAME)]
    return RecordSpan(position, start, length, part.end, count, head)


def read_record(file: RecordFile, position: int) -> bytes:
    """Returns the data of the record that starts at this byte, its parts joined.

    Raises:
        ValueError: as `find_record`.
    """
    span = find_record(file, position)
    if span.parts == 1:
        return _data(file, span.start, span.length)
    data = file.read(position, span.end - position)
    return join_parts(data, f"{file.path}, byte {position}")


def join_parts(data: bytes, where: str) -> bytes:
    """Returns the data of a record whose frames are given.

    Args:
        data: all frames of the record.
        where: names the record for the error.

    Raises:
        ValueError: they are no frames; the file has changed since it was opened.
    """
    pieces, at = [], 0
    while at < len(data):
        if data[at : at + 4] != MAGIC or len(data) < at + _FRAME:
            raise ValueError(f"{where}: the file changed since it was opened.")
        length = struct.unpack_from("<I", data, at + 4)[0] & (2**29 - 1)
        pieces.append(data[at + _FRAME : at + _FRAME + length])
        at += _FRAME + length + -length % 4
    return MAGIC.join(pieces)


def image_header(file: RecordFile, span: RecordSpan) -> ImageHeader:
    """Reads the header of an image record.

    Raises:
        ValueError: the record is shorter than its header says.
    """
    head = span.head
    if len(head) < _IMAGE_HEADER.size:
        raise _fault(
            file,
            span.position,
            f"a record of at least {_IMAGE_HEADER.size} bytes (an image header), "
            f"received {span.length}",
        )
    flag, label, number, _ = _IMAGE_HEADER.unpack_from(head)
    size = _IMAGE_HEADER.size + 4 * flag
    if size > span.length:
        raise _fault(
            file,
            span.position,
            f"an image header with {flag} labels, {size} bytes, within a record of "
            f"{span.length} bytes",
        )
    if flag:
        (label,) = struct.unpack_from("<f", head, _IMAGE_HEADER.size)
    return ImageHeader(flag, label, number, size)


def header_labels(file: RecordFile, span: RecordSpan) -> tuple[float, ...]:
    """Returns all labels of a record with a checked header."""
    header = image_header(file, span)
    if not header.flag:
        return (header.label,)
    data = read_record(file, span.position)
    return struct.unpack_from(f"<{header.flag}f", data, _IMAGE_HEADER.size)


def walk(file: RecordFile, position: int = 0) -> Iterator[RecordSpan]:
    """Yields the records in the order of the file.

    Raises:
        ValueError: at the first byte where no record is.
    """
    while position < file.size:
        span = find_record(file, position)
        yield span
        position = span.end


def resynchronise(file: RecordFile, position: int) -> int:
    """Returns where the next record may start after a damaged one, or the file's end.

    That is where the magic number stands at a multiple of 4 bytes, before a whole
    record or a first part that ends within the file.
    """
    position += -position % 4
    while position < file.size:
        data = file.read(position, _RESYNC_BYTES)
        found = data.find(MAGIC)
        while found >= 0:
            where = position + found
            if where % 4 == 0 and _starts_record(file, where):
                return where
            found = data.find(MAGIC, found + 1)
        # The magic number may lie across two reads; both start at a multiple of 4.
        position += max(len(data) & ~3, 4)
    return file.size


def _starts_record(file: RecordFile, position: int) -> bool:
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
        if line.strip():
            yield _index_entry(path, number, line)


def _index_entry(path: str, number: int, line: bytes) -> tuple[int, int]:
    fields = line.split()
    if len(fields) != 2 or not (fields[0].isdigit() and fields[1].isdigit()):
        raise _index_fault(path, number, line)
    if max(len(fields[0]), len(fields[1])) > 18:
        raise _index_fault(path, number, line)
    return int(fields[0]), int(fields[1])


def _index_fault(path: str, number: int, line: bytes) -> ValueError:
    return ValueError(
        f"{path}, line {number}: expected 'key position', two whole numbers separated "
        f"by a tab. Received: {line[:80]!r}. Copy the file again, or remove it: "
        "without a .idx the .rec is read through once."
    )


def _frame(file: RecordFile, position: int, data: bytes) -> Part:
    """Reads a frame's 8 bytes and checks that its data lies within the file."""
    if position % 4:
        raise _fault(file, position, "a record at a multiple of 4 bytes")
    if len(data) < _FRAME:
        raise _fault(file, position, f"a record, but the file ends at byte {file.size}")
    if data[:4] != MAGIC:
        raise _fault(
            file, position, f"the magic number {MAGIC.hex()}, received {data[:4].hex()}"
        )
    (word,) = struct.unpack_from("<I", data, 4)
    kind, length = word >> 29, word & (2**29 - 1)
    start = position + _FRAME
    end = start + length + -length % 4
    # The last record may come without the bytes that fill it up.
    if start + length > file.size:
        raise _fault(
            file,
            position,
            f"a record of {length} bytes, but the file ends at byte {file.size}",
        )
    if kind > _LAST:
        raise _fault(file, position, f"part kind 0 to 3, received {kind}")
    return Part(kind, start, length, end)


def _data(file: RecordFile, start: int, length: int) -> bytes:
    data = file.read(start, length)
    if len(data) != length:
        raise OSError(
            f"{file.path}: expected {length} bytes at byte {start}, received "
            f"{len(data)}. Did the file change while it was read?"
        )
    return data


def _fault(file: RecordFile, position: int, expected: str) -> ValueError:
    return ValueError(
        f"{file.path}, byte {position}: expected {expected}. Copy the file again; "
        "`python -m plsc_tf.check` lists all damaged records."
    )
