"""MXNet RecordIO: train.rec and train.idx, as insightface's data sets come."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterator

import numpy as np

from plsc_tf.data.readers.packed import packed_source
from plsc_tf.data.records import recordio
from plsc_tf.data.records.packed_files import PackedFiles, RandomAccessFile
from plsc_tf.data.source import IndexedSource
from plsc_tf.storage import files


@dataclasses.dataclass(slots=True)
class Entry:
    """A record: an image, or an error that says what is wrong with it."""

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
    """Reads a .rec file, in the order of the .idx next to it, or of the file.

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
    columns, split, identities = _find_images(rec)
    keys, begins, lengths, labels = (np.frombuffer(c, np.int64) for c in columns)

    def describe(number: int) -> str:
        return f"record {keys[number]} of {rec}, at byte {begins[number]}"

    def unpack(data: bytes, number: int) -> tuple[bytes, int]:
        if number in split:
            data = recordio.join_parts(data, describe(number))[split[number] :]
        return data, 0

    return packed_source(
        rec,
        PackedFiles([rec], [len(keys)], begins, lengths),
        unpack,
        labels=labels - labels_offset,
        num_classes=num_classes or identities,
        describe=describe,
    )


def index_path(rec: str) -> str | None:
    """Returns the path of the .idx of a .rec, None if there is none."""
    path = rec.removesuffix(".rec") + ".idx"
    return path if files.exists(path) else None


def _find_images(rec: str):
    """Finds all images of a file; raises at the first fault.

    Returns:
        arrays of keys, first bytes, lengths and labels; bytes of the header of records
        in several parts, one in a million, by number; the number of identities or None.
    """
    file, idx = RandomAccessFile(rec), index_path(rec)
    columns = [array.array("q") for _ in range(4)]
    split, finder = {}, ImageFinder(file, idx)
    for entry in finder.find():
        if entry.error is not None:
            raise entry.error
        if entry.span.parts > 1:
            split[len(columns[0])] = entry.header.size
        values = entry.key, *entry.place, entry.label
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    count = len(columns[0])
    if finder.num_images is not None and finder.num_images != count:
        raise ValueError(
            f"{rec}: record 0 counts {finder.num_images} images, but there are "
            f"{count}{f' in {idx}' if idx else ''}. Copy the files again."
        )
    if not count:
        raise ValueError(f"{rec} holds no images; it has {file.size} bytes.")
    return columns, split, finder.num_classes


class ImageFinder:
    """Finds the images of a .rec file and goes on after damaged records.

    Args:
        file: the .rec file.
        idx: path of the .idx file, None to read through the .rec.

    Attributes:
        num_images: that record 0 counts, None when it is no insightface header.
        num_classes: identities that record 0 counts, or None.
    """

    def __init__(self, file: RandomAccessFile, idx: str | None):
        self.num_images: int | None = None
        self.num_classes: int | None = None
        self._file = file
        self._idx = idx
        self._resynchronized = False

    def find(self) -> Iterator[Entry]:
        """Yields images and faults, in the order of the .idx or of the file."""
        candidates = self._indexed() if self._idx else self._scanned()
        for number, entry in enumerate(candidates):
            if entry.error is not None:
                yield entry
                continue
            try:
                entry.header = recordio.image_header(self._file, entry.span)
                if number == 0 and _is_identity_header(entry):
                    self._read_counts(entry.span)
                    continue
                if not self._is_image(entry):
                    continue
                entry.label = self._label(entry)
            except ValueError as error:
                entry.error = error
            yield entry

    def _indexed(self) -> Iterator[Entry]:
        """The records that the .idx names."""
        for key, position in recordio.index_entries(self._idx):
            try:
                yield Entry(key, recordio.find_record(self._file, position))
            except ValueError as error:
                hint = ValueError(f"{error} ({self._idx} names it as record {key}.)")
                yield Entry(key, error=hint)

    def _scanned(self) -> Iterator[Entry]:
        """All records, one after the other."""
        position, key = 0, 0
        while position < self._file.size:
            try:
                span = recordio.find_record(self._file, position)
                yield Entry(key, span)
                position = span.end
            except ValueError as error:
                yield Entry(key, error=error)
                self._resynchronized = True
                position = recordio.resynchronize(self._file, position + 4)
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

    def _is_image(self, entry: Entry) -> bool:
        """Whether a record is an image, and not one of insightface's identities."""
        if self.num_images is None:
            return True
        if self._resynchronized:
            # Records were lost, so that their numbers say nothing.
            return not _is_identity_header(entry)
        return 1 <= entry.key <= self.num_images

    def _label(self, entry: Entry) -> int:
        label = entry.header.label
        place = f"{self._file.path}, record {entry.key} at byte {entry.span.position}"
        if entry.span.length == entry.header.size:
            raise ValueError(f"{place}: expected an image, received a header alone.")
        # NaN is not equal to itself; float32 holds whole numbers up to 2^24 exactly.
        if not (label == label // 1 and abs(label) < 2**31):
            raise ValueError(
                f"{place}: expected a whole number as label. Received: {label!r}."
            )
        return int(label)


def _is_identity_header(entry: Entry) -> bool:
    """Whether it is insightface's header: two or more labels and no image."""
    return entry.header.flag >= 2 and entry.span.length == entry.header.size
