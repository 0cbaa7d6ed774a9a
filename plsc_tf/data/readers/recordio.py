"""Reads MXNet RecordIO (train.rec, train.idx), the format of insightface's data sets.

MXNet is not needed. A record is a magic number, a word of 3 flag bits and 29 length
bits, and the data, padded to a multiple of 4 bytes. Data that contains the magic number
(at a multiple of 4 bytes) is split there into parts without it, and the reader inserts
it again. Source: the published format in dmlc-core's recordio.h and mxnet.recordio
(IRHeader).
"""

import array
import dataclasses
import struct
from collections.abc import Iterator

import numpy as np
from absl import logging

from plsc_tf.data import paths
from plsc_tf.data.readers.packed import PackedFiles, RandomAccessFile, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require
from plsc_tf.storage import files

MAGIC = struct.pack("<I", 0xCED7230A)
# Kinds of frames: a whole record, or the first, a middle or the last part of a record.
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_FRAME = 8
# flag, label, id, id2; if flag is not 0, it is the number of float labels that follow.
_IMAGE_HEADER = struct.Struct("<IfQQ")
# Bytes to read first: enough for a record's length and its first two labels.
_PEEK = _FRAME + _IMAGE_HEADER.size + 8
_LENGTH_BITS = 2**29 - 1
# An .idx could lead to a chain of a million parts, or a damaged one, again and again.
_MOST_PARTS, _MOST_DAMAGED, _LONGEST = 100, 10_000, 3 << 24


# Not frozen: there are millions of records, and frozen ones take three times as long
# to create.
@dataclasses.dataclass(slots=True)
class Record:
    """A record: an image, or an error that describes what is wrong with it.

    Attributes:
        key: number of the record in the .idx or, without .idx, in the file.
        position: position of its first frame.
        end: position of the next record; 0 if unknown.
        begin: position of the image, or of the first frame if there are several.
        length: length in bytes from `begin`.
        is_empty: whether it has only an image header.
        labels: the label in the image header, or the first two that follow it.
        error: the reason why it is not an image, or None.
    """

    key: int
    position: int = 0
    end: int = 0
    begin: int = 0
    length: int = 0
    is_empty: bool = False
    labels: tuple[float, ...] = ()
    error: ValueError | None = None


def recordio_source(rec: str, **numbers: int | None) -> IndexedSource:
    """Reads a .rec file in the order of its .idx or, if there is none, of the file.

    Record 0 of insightface's files contains the number of the first record that is not
    an image and the number of records; the difference is the number of identities.

    Args:
        rec: path of the .rec file.
        **numbers: num_classes, by default the number from record 0 or, without one, the
            largest label + 1, and labels_offset of `packed_source`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a record or the index is damaged, a label is out of range or not a
            whole number, or the number of images differs from that in record 0. The
            message gives the file, and the byte or line.
    """
    table, finder = array.array("q"), ImageFinder(rec)
    for record in finder.find():
        if record.error is not None:
            raise record.error
        table.extend((record.key, record.begin, record.length, int(record.labels[0])))
    keys, begins, lengths, labels = np.array(table, np.int64).reshape(-1, 4).T.copy()
    require(len(keys), f"{rec} has no images. Its size is {finder.file.size} bytes")

    def describe(number: int) -> str:
        return f"record {keys[number]} of {rec}, at byte {begins[number]}"

    packed = PackedFiles([rec], [len(keys)], begins, lengths)
    packed.describe = describe
    numbers["num_classes"] = numbers.get("num_classes") or finder.num_classes
    return packed_source(
        rec, packed, lambda data: image_of(data, rec), labels=labels, **numbers
    )


class ImageFinder:
    """Locates the images in a .rec file; continues after a fault if there is an .idx.

    Args:
        rec: path of the .rec file.

    Attributes:
        file: the .rec file.
        num_images: number of images according to record 0; None if record 0 is not an
            insightface header.
        num_classes: number of identities according to record 0, or None.
    """

    def __init__(self, rec: str):
        self.file = RandomAccessFile(rec)
        self.num_images: int | None = None
        self.num_classes: int | None = None
        self._idx = rec.removesuffix(".rec") + ".idx"

    def find(self) -> Iterator[Record]:
        """Yields images and faulty records, in the order of the .idx or the file.

        Raises:
            ValueError: at the end, if there are fewer images than record 0 gives, or
                more.
        """
        records = self._indexed() if files.exists(self._idx) else self._scanned()
        count = 0
        for number, record in enumerate(records):
            try:
                if record.error is None:
                    record = self._image(record, is_first=number == 0)
            except ValueError as error:
                record.error = error
            if record is not None:
                count += 1
                yield record
        path, number = self.file.path, self.num_images
        rule = f"{path}: record 0 gives the number of images as {number}"
        advice = "Copy the .rec and the .idx again"
        require(number in (None, count), rule, advice, images=count)

    def content(self, record: Record) -> bytes:
        """Returns the encoded image of a record."""
        place = f"{self.file.path}, byte {record.begin}"
        return image_of(self.file.read(record.begin, record.length), place)

    def _indexed(self) -> Iterator[Record]:
        """Yields the records listed in the .idx."""
        total = damaged = 0
        for number, line in paths.read_lines(self._idx, longest=80):
            if not (fields := line.split()):
                continue
            place, advice = f"{self._idx}, line {number}", "Remove it, or copy it again"
            valid = all(field.isdigit() and len(field) <= 18 for field in fields)
            rule = f"{place}: expected two whole numbers, key and position"
            require(valid and len(fields) == 2, rule, advice, line=line)
            key, position = map(int, fields)
            try:
                record = find_record(self.file, position, key)
            except ValueError as error:
                hint = f"{error} (Record {key} of {self._idx}.)"
                record, damaged = Record(key, error=ValueError(hint)), damaged + 1
            total += record.end - record.position
            # Reading a large record for each of many lines would take days.
            require(total <= self.file.size + 3, f"{place}: records overlap", advice)
            rule = f"{place}: more than {_MOST_DAMAGED:,} records are damaged"
            require(damaged <= _MOST_DAMAGED, rule, advice)
            yield record
        if not damaged and total + 3 < self.file.size:
            left = self.file.size - total
            message = "%d bytes of %s are left out, because %s does not list them."
            logging.warning(message, left, self.file.path, self._idx)

    def _scanned(self) -> Iterator[Record]:
        """Yields all records in file order, up to the first damaged one."""
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
        """Returns the record if it is an image, None if it is an insightface header."""
        if is_first and len(record.labels) == 2 and record.is_empty:
            self._set_counts(record)
            return None
        if self.num_images is not None and not 1 <= record.key <= self.num_images:
            return None
        label = record.labels[0]
        place = f"{self.file.path}, record {record.key} at byte {record.position}"
        require(not record.is_empty, f"{place}: expected an image after the header")
        # NaN fails this check because it is not equal to itself. Labels are float32,
        # which represents all whole numbers exactly only up to 2^24.
        good = label == label // 1 and abs(label) < 2**31
        require(good, f"{place}: expected a whole number as label", label=label)
        return record

    def _set_counts(self, record: Record) -> None:
        first, last = record.labels
        if not (1 <= first <= last < 2**31):
            expected = "record 0 to hold the range of identity records, first and end, "
            received = f"received first={first:g}, end={last:g}"
            expected += f"with 1 <= first <= end < 2^31, {received}"
            raise _fault(self.file, record.position, expected)
        self.num_images = int(first) - 1
        # insightface's files may have no identity records; record 0 is then
        # (n + 1, n + 1).
        self.num_classes = int(last) - int(first) or None


def find_record(file: RandomAccessFile, position: int, key: int = 0) -> Record:
    """Locates a record's parts and reads its image header.

    Raises:
        ValueError: there is no record at this position, or it is truncated; the message
            gives the file and the byte.
    """
    peeked = file.read(position, _PEEK)
    kind, start, length, end = _frame(file, position, peeked)
    head, parts, total = peeked[_FRAME : _FRAME + length], 1, length
    if kind not in (_WHOLE, _FIRST):
        expected = f"a record's first part, received part kind {kind}"
        raise _fault(file, position, expected)
    while kind not in (_WHOLE, _LAST):
        place, peeked = end, file.read(end, _PEEK)
        kind, _, length, end = _frame(file, place, peeked)
        if parts == _MOST_PARTS:
            raise _fault(file, position, f"a record of at most {_MOST_PARTS} parts")
        if kind not in (_MIDDLE, _LAST):
            expected = f"a further part of the record at byte {position}, received "
            raise _fault(file, place, f"{expected}part kind {kind}")
        # Enough of each part to join the beginning of the record.
        head += MAGIC + peeked[_FRAME : _FRAME + length]
        parts, total = parts + 1, total + len(MAGIC) + length
    if total > _LONGEST:
        raise _fault(file, position, f"a record of at most {_LONGEST:,} bytes")
    if total < _IMAGE_HEADER.size:
        expected = f"a record of at least {_IMAGE_HEADER.size} bytes (an image header)"
        raise _fault(file, position, f"{expected}, received {total}")
    flag, label, _, _ = _IMAGE_HEADER.unpack_from(head)
    header = _IMAGE_HEADER.size + 4 * flag
    if header > total:
        expected = f"a record of {header} bytes or more, for {flag} labels"
        raise _fault(file, position, f"{expected}, received {total}")
    labels = struct.unpack_from(f"<{min(flag, 2)}f", head, _IMAGE_HEADER.size)
    place = start + header, total - header
    if parts > 1:
        place = position, end - position
    return Record(key, position, end, *place, header == total, labels or (label,))


def image_of(data: bytes, place: str) -> bytes:
    """Returns an image from its bytes, or from all frames of its record.

    No image begins with a magic number: a writer would have split it there.
    """
    if not data.startswith(MAGIC):
        return data
    data = join_parts(data, place)
    return data[_IMAGE_HEADER.size + 4 * int.from_bytes(data[:4], "little") :]


def join_parts(data: bytes, place: str) -> bytes:
    """Joins the parts of a record into its data.

    Args:
        data: all frames of the record.
        place: name of the record, for the error.

    Raises:
        ValueError: the frames are invalid: the file changed after it was opened.
    """
    pieces, at = [], 0
    while at < len(data):
        if data[at : at + 4] != MAGIC or len(data) < at + _FRAME:
            raise ValueError(f"{place}: the file changed since it was opened.")
        length = struct.unpack_from("<I", data, at + 4)[0] & _LENGTH_BITS
        pieces.append(data[at + _FRAME : at + _FRAME + length])
        at += _FRAME + length + -length % 4
    return MAGIC.join(pieces)


def _frame(file: RandomAccessFile, at: int, data: bytes) -> tuple[int, int, int, int]:
    """Reads a frame's 8-byte header and checks that its data is within the file.

    Returns:
        (kind of frame, position of its data, length of its data, position of the next
        frame).
    """
    if at % 4:
        raise _fault(file, at, "a record, but records begin at multiples of 4")
    if len(data) < _FRAME:
        raise _fault(file, at, f"a record, but the file ends at byte {file.size}")
    if data[:4] != MAGIC:
        received = f"{MAGIC.hex()}, received {data[:4].hex()}"
        raise _fault(file, at, f"the magic number {received}")
    (word,) = struct.unpack_from("<I", data, 4)
    kind, length = word >> 29, word & _LENGTH_BITS
    start = at + _FRAME
    # The last record may lack its padding bytes.
    if start + length > file.size:
        expected = f"a record of {length} bytes, but the file ends at byte {file.size}"
        raise _fault(file, at, expected)
    return kind, start, length, start + length + -length % 4


def _fault(file: RandomAccessFile, position: int, expected: str) -> ValueError:
    return ValueError(
        f"{file.path}, byte {position}: expected {expected}. Copy the file again; "
        "`python -m plsc_tf.check` lists all damaged records."
    )
