"""MXNet RecordIO: train.rec and train.idx, as insightface's data sets come."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterator

import numpy as np

from plsc_tf.data.readers.packed import packed_source
from plsc_tf.data.records import recordio
from plsc_tf.data.records.packed_files import PackedFiles, RecordIndex
from plsc_tf.data.source import IndexedSource
from plsc_tf.storage import files


@dataclasses.dataclass(frozen=True)
class ImageTable:
    """Where the images of a .rec file lie.

    Attributes:
        path: of the .rec file.
        keys: int64 [n], numbers of the records.
        begins: int64 [n], first byte of each encoded image; of the whole record where
            it is in several parts.
        lengths: int64 [n], bytes of each encoded image, or of the whole record.
        labels: int64 [n].
        split: index -> bytes of the header, of records in several parts, whose images
            do not lie in one piece; there is one in a million.
        num_classes: number of identities that record 0 tells, or None.
    """

    path: str
    keys: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    split: dict[int, int]
    num_classes: int | None

    def unpack(self, data: bytes, index: int) -> bytes:
        """Returns an encoded image of the bytes that lie there."""
        if index not in self.split:
            return data
        return recordio.join_parts(data, self.describe(index))[self.split[index] :]

    def describe(self, index: int) -> str:
        """Names an image for an error message."""
        return f"record {self.keys[index]} of {self.path}, at byte {self.begins[index]}"


@dataclasses.dataclass(slots=True)
class Found:
    """A record as `find_images` meets it: an image, or what is wrong with it."""

    key: int
    span: recordio.RecordSpan | None = None
    header: recordio.ImageHeader | None = None
    label: int = 0
    error: ValueError | None = None

    @property
    def place(self) -> tuple[int, int]:
        """(first byte, bytes) of the image, or of the record if it is in parts."""
        if self.span.parts > 1:
            return self.span.position, self.span.end - self.span.position
        size = self.header.size
        return self.span.start + size, self.span.length - size


def recordio_source(
    rec: str,
    *,
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Reads a .rec file, in the order of the .idx beside it, or of the file.

    Record 0 of insightface's files holds the number of the first record that is no
    image, and the number of records; the difference is the number of identities.

    Args:
        rec: path of the .rec file.
        num_classes: number of classes; None means what record 0 says, else the
            largest label + 1.
        labels_offset: subtracted from each label.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged record or index, a label that is no whole number or out
            of range, images that record 0 counts and that are missing; with file and
            byte, or line.
    """
    if not files.exists(rec):
        raise FileNotFoundError(f"There is no RecordIO file {rec!r}.")
    table = read_table(recordio.RecordFile(rec), index_path(rec))
    index = RecordIndex([rec], [len(table.keys)], table.begins, table.lengths)
    return packed_source(
        rec,
        PackedFiles(index),
        table.unpack,
        labels=table.labels - labels_offset,
        num_classes=num_classes or table.num_classes,
        describe=table.describe,
    )


def index_path(rec: str) -> str | None:
    """Returns the path of the .idx beside a .rec, None when there is none."""
    path = rec.removesuffix(".rec") + ".idx"
    return path if files.exists(path) else None


def read_table(file: recordio.RecordFile, idx: str | None) -> ImageTable:
    """Finds all images; raises at the first fault, see `recordio_source`."""
    columns = [array.array("q") for _ in range(4)]
    keys, begins, lengths, labels = columns
    split, finder = {}, ImageFinder(file, idx)
    for found in finder.find():
        if found.error is not None:
            raise found.error
        begin, length = found.place
        if found.span.parts > 1:
            split[len(keys)] = found.header.size
        keys.append(found.key)
        begins.append(begin)
        lengths.append(length)
        labels.append(found.label)
    if finder.num_images is not None and finder.num_images != len(keys):
        raise ValueError(
            f"{file.path}: record 0 counts {finder.num_images} images, but there are "
            f"{len(keys)}{f' in {idx}' if idx else ''}. Copy the files again."
        )
    if not keys:
        raise ValueError(f"{file.path} holds no images; it has {file.size} bytes.")
    arrays = [np.frombuffer(column, np.int64) for column in columns]
    return ImageTable(file.path, *arrays, split, finder.num_classes)


class ImageFinder:
    """Finds the images of a .rec file and goes on after damaged records.

    Args:
        file: the .rec file.
        idx: path of the .idx file, None to read through the .rec.

    Attributes:
        num_images: that record 0 counts, None when it is no insightface header.
        num_classes: identities that record 0 counts, or None.
    """

    def __init__(self, file: recordio.RecordFile, idx: str | None):
        self.num_images: int | None = None
        self.num_classes: int | None = None
        self._file = file
        self._idx = idx
        self._resynchronised = False

    def find(self) -> Iterator[Found]:
        """Yields images and faults, in the order of the .idx or of the file."""
        candidates = self._indexed() if self._idx else self._scanned()
        for number, found in enumerate(candidates):
            if found.error is not None:
                yield found
                continue
            header = None
            try:
                header = recordio.image_header(self._file, found.span)
                if number == 0 and _is_identity_header(found.span, header):
                    self._read_counts(found.span)
                elif self._is_image(found, header):
                    found.header = header
                    found.label = self._label(found, header)
                    yield found
            except ValueError as error:
                found.header, found.error = header, error
                yield found

    def _indexed(self) -> Iterator[Found]:
        """The records that the .idx names."""
        for key, position in recordio.index_entries(self._idx):
            try:
                yield Found(key, recordio.find_record(self._file, position))
            except ValueError as error:
                hint = ValueError(f"{error} ({self._idx} names it as record {key}.)")
                yield Found(key, error=hint)

    def _scanned(self) -> Iterator[Found]:
        """All records, one after the other."""
        position, key = 0, 0
        while position < self._file.size:
            try:
                span = recordio.find_record(self._file, position)
                yield Found(key, span)
                position = span.end
            except ValueError as error:
                yield Found(key, error=error)
                self._resynchronised = True
                position = recordio.resynchronise(self._file, position + 4)
            key += 1

    def _read_counts(self, span: recordio.RecordSpan) -> None:
        first, last = recordio.header_labels(self._file, span)[:2]
        if not (1 <= first <= last < 2**31):
            raise ValueError(
                f"{self._file.path}, byte {span.position}: expected record 0 to hold "
                "the numbers of the first identity record and of the last, 1 <= first "
                f"<= last. Received: {first:g}, {last:g}. Copy the file again."
            )
        self.num_images = int(first) - 1
        # insightface's files may come without identity records: (n + 1, n + 1).
        self.num_classes = int(last) - int(first) or None

    def _is_image(self, found: Found, header: recordio.ImageHeader) -> bool:
        """Whether a record is an image, and not one of insightface's identities."""
        if self.num_images is None:
            return True
        if self._resynchronised:
            # Records were lost, so that their numbers say nothing.
            return not _is_identity_header(found.span, header)
        return 1 <= found.key <= self.num_images

    def _label(self, found: Found, header: recordio.ImageHeader) -> int:
        where = f"{self._file.path}, record {found.key} at byte {found.span.position}"
        if found.span.length == header.size:
            raise ValueError(f"{where}: expected an image, received a header alone.")
        # NaN is not equal to itself; float32 holds whole numbers up to 2^24 exactly.
        if not (header.label == header.label // 1 and abs(header.label) < 2**31):
            raise ValueError(
                f"{where}: expected a whole number as label. "
                f"Received: {header.label!r}."
            )
        return int(header.label)


def _is_identity_header(
    span: recordio.RecordSpan, header: recordio.ImageHeader
) -> bool:
    """Whether it is insightface's header: two or more labels and no image."""
    return header.flag >= 2 and span.length == header.size
