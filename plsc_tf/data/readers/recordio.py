"""MXNet RecordIO without mxnet: train.rec and train.idx, as insightface's sets come.

A record is a magic number and a word of 3 flag bits and 29 length bits, then the
data, filled up to a multiple of 4 bytes. Data that holds the magic number itself (at a
multiple of 4 bytes) is cut there into parts, and the reader puts it back in between.
Source: the published format of dmlc-core's recordio.h and of mxnet.recordio (IRHeader).
"""

from __future__ import annotations

import array
import dataclasses
import struct
from collections.abc import Iterator

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.readers.packed import PackedFiles, RandomAccessFile, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.storage import files

MAGIC = struct.pack("<I", 0xCED7230A)
# Whole record, or the first, a middle or the last part of one.
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_FRAME = 8
# flag, label, id, id2; `flag` float labels follow when it is not 0.
_IMAGE_HEADER = struct.Struct("<IfQQ")
# What is read of a record to learn its length and its first label in one go.
_PEEK = _FRAME + _IMAGE_HEADER.size + 8
_LENGTH_BITS = 2**29 - 1


# There are millions of these; frozen ones take three times as long to make.
@dataclasses.dataclass(slots=True)
class Record:
    """A record: an image, or an error that says what is wrong with it.

    Attributes:
        key: its number in the .idx, or in the file.
        position: of its first frame.
        start: of its data, or of the data of its first part.
        length: bytes of its data, the magic numbers between parts included.
        end: where the next record starts.
        parts: number of frames.
        flag: number of float labels after the image header; 0: there is one, inside.
        header: bytes of header and labels; the encoded image follows. 0 if unknown.
        label: the first label.
        error: why it is no image, or None.
    """

    key: int
    position: int = 0
    start: int = 0
    length: int = 0
    end: int = 0
    parts: int = 1
    flag: int = 0
    header: int = 0
    label: float = 0
    error: ValueError | None = None

    @property
    def place(self) -> tuple[int, int]:
        """(first byte, bytes) of the image, or of the record if it is in parts."""
        if self.parts > 1:
            return self.position, self.end - self.position
        return self.start + self.header, self.length - self.header

    @property
    def is_empty(self) -> bool:
        """Whether it is an image header alone."""
        return self.header == self.length


def recordio_source(
    rec: str,
    *,
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Reads a .rec file, in the order of the .idx next to it, or of the file.

    Record 0 of insightface's files holds the number of the first record that is no
    image, and the number of records; the difference is the number of identities.

    Args:
        rec: path of the .rec file.
        num_classes: number of classes; None means the number in record 0, else the
            largest label + 1.
        labels_offset: subtracted from each label.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged record or index, a label that is no whole number or out
            of range, images that record 0 counts and that are missing; with file and
            byte, or line.
    """
    columns, finder = [array.array("q") for _ in range(4)], ImageFinder(rec)
    # Bytes of the header of records in several parts, one in a million, by number.
    split = {}
    for record in finder.find():
        if record.error is not None:
            raise record.error
        if record.parts > 1:
            split[len(columns[0])] = record.header
        values = record.key, *record.place, record.label
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    keys, begins, lengths, labels = (np.frombuffer(c, np.int64) for c in columns)
    if finder.num_images not in (None, len(keys)):
        raise ValueError(
            f"{rec}: record 0 counts {finder.num_images} images, but there are "
            f"{len(keys)} in the file or its .idx. Copy the files again."
        )
    if not len(keys):
        raise ValueError(f"{rec} holds no images; it has {finder.file.size} bytes.")

    def describe(number: int) -> str:
        return f"record {keys[number]} of {rec}, at byte {begins[number]}"

    def unpack(data: bytes, number: int) -> tuple[bytes, int]:
        if number in split:
            data = join_parts(data, describe(number))[split[number] :]
        return data, 0

    return packed_source(
        rec,
        PackedFiles([rec], [len(keys)], begins, lengths),
        unpack,
        labels=labels - labels_offset,
        num_classes=num_classes or finder.num_classes,
        describe=describe,
    )


class ImageFinder:
    """Finds the images of a .rec file, and continues after a fault if it has an .idx.

    Args:
        rec: path of the .rec file.

    Attributes:
        file: the .rec file.
        num_images: that record 0 counts, None when it is no insightface header.
        num_classes: identities that record 0 counts, or None.
    """

    def __init__(self, rec: str):
        if not files.exists(rec):
            raise FileNotFoundError(f"There is no RecordIO file {rec!r}.")
        self.file = RandomAccessFile(rec)
        self.num_images: int | None = None
        self.num_classes: int | None = None
        self._idx = rec.removesuffix(".rec") + ".idx"

    def find(self) -> Iterator[Record]:
        """Yields images and faults, in the order of the .idx or of the file."""
        records = self._indexed() if files.exists(self._idx) else self._scanned()
        for number, record in enumerate(records):
            try:
                if record.error is None:
                    record = self._image(record, is_first=number == 0)
            except ValueError as error:
                record.error = error
            if record is not None:
                yield record

    def content(self, record: Record) -> bytes:
        """Returns the encoded image of a record."""
        begin, length = record.place
        data = self.file.read(begin, length)
        if record.parts == 1:
            return data
        return join_parts(data, f"{self.file.path}, byte {begin}")[record.header :]

    def _indexed(self) -> Iterator[Record]:
        """The records that the .idx names."""
        for number, line in paths.read_lines(self._idx, longest=80):
            fields = line.split()
            if not fields:
                continue
            if len(fields) != 2 or not all(
                field.isdigit() and len(field) <= 18 for field in fields
            ):
                raise ValueError(
                    f"{self._idx}, line {number}: expected two whole numbers, key and "
                    f"position. Received: {line!r}. Remove the .idx, or copy it again."
                )
            key, position = map(int, fields)
            try:
                yield find_record(self.file, position, key)
            except ValueError as error:
                hint = f"{error} ({self._idx} names it as record {key}.)"
                yield Record(key, error=ValueError(hint))

    def _scanned(self) -> Iterator[Record]:
        """All records, one after the other, up to the first damaged one."""
        position, key = 0, 0
        while position < self.file.size:
            try:
                record = find_record(self.file, position, key)
            except ValueError as error:
                yield Record(key, error=error)
                return
            yield record
            position, key = record.end, key + 1

    def _image(self, record: Record, *, is_first: bool) -> Record | None:
        """The record if it is an image, None if it is one of insightface's headers."""
        if is_first and record.flag >= 2 and record.is_empty:
            self._read_counts(record)
            return None
        if self.num_images is not None and not 1 <= record.key <= self.num_images:
            return None
        label = record.label
        place = f"{self.file.path}, record {record.key} at byte {record.position}"
        if record.is_empty:
            raise ValueError(f"{place}: expected an image, received a header alone.")
        # NaN is not equal to itself; float32 holds whole numbers up to 2^24 exactly.
        if not (label == label // 1 and abs(label) < 2**31):
            raise ValueError(
                f"{place}: expected a whole number as label. Received: {label!r}."
            )
        record.label = int(label)
        return record

    def _read_counts(self, record: Record) -> None:
        data = self.file.read(record.start + _IMAGE_HEADER.size, 8)
        first, last = struct.unpack("<2f", data)
        if not (1 <= first <= last < 2**31):
            raise _fault(
                self.file,
                record.position,
                "record 0 to hold the numbers of the first identity record and of the "
                f"last, 1 <= first <= last, received {first:g}, {last:g}",
            )
        self.num_images = int(first) - 1
        # insightface's files may come without identity records: (n + 1, n + 1).
        self.num_classes = int(last) - int(first) or None


def find_record(file: RandomAccessFile, position: int, key: int = 0) -> Record:
    """Finds a record's parts and its image header, all within the file's size.

    Raises:
        ValueError: there is no such record, or it is cut off; with file and byte.
    """
    peeked = file.read(position, _PEEK)
    kind, start, length, end = _frame(file, position, peeked)
    head, parts, total = peeked[_FRAME : _FRAME + length], 1, length
    if kind not in (_WHOLE, _FIRST):
        expected = f"a record's first part, received part kind {kind}"
        raise _fault(file, position, expected)
    while kind not in (_WHOLE, _LAST):
        place = end
        kind, part, length, end = _frame(file, place, file.read(place, _FRAME))
        if kind not in (_MIDDLE, _LAST):
            expected = f"a further part of the record at byte {position}, received "
            raise _fault(file, place, f"{expected}part kind {kind}")
        if len(head) < _PEEK:
            head += MAGIC + file.read(part, min(length, _PEEK))
        total += len(MAGIC) + length
        parts += 1
    if min(len(head), total) < _IMAGE_HEADER.size:
        expected = f"a record of at least {_IMAGE_HEADER.size} bytes (an image header)"
        raise _fault(file, position, f"{expected}, received {total}")
    flag, label, _, _ = _IMAGE_HEADER.unpack_from(head)
    header = _IMAGE_HEADER.size + 4 * flag
    if header > total:
        expected = f"an image header with {flag} labels, {header} bytes, within a"
        raise _fault(file, position, f"{expected} record of {total} bytes")
    if flag:
        (label,) = struct.unpack_from("<f", head, _IMAGE_HEADER.size)
    return Record(key, position, start, total, end, parts, flag, header, label)


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
