"""Inputs of a conversion, read in batches of records in the output's format.

Reading can resume after each batch from the batch's `position`, which can be stored as
JSON.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from plsc_tf.data.image_limit import MAX_MEGAPIXELS, check_pixels, num_pixels
from plsc_tf.data.images import encode
from plsc_tf.data.readers import tfrecord
from plsc_tf.data.readers.formats import TFRECORD, Format, image_kind
from plsc_tf.data.readers.python import to_picture
from plsc_tf.data.source import IndexedSource, Source, label_error
from plsc_tf.requirements import require
from plsc_tf.storage import files

_MOST_BUCKETS = 512
# Guess for the number of records of a source of unknown length.
UNKNOWN = 1 << 21
_MOST_RECORDS = 1 << 14


class _Input:
    """Base class of inputs.

    A subclass has `_items(position)`, which yields (item, position after it, number of
    units of `total` in it); `_before(position)`, which describes the item before a
    position; and `_record(item, output)`, which returns (record, length of its payload,
    label).

    Args:
        total: size of the input, or None if unknown.
        labels_offset: number to subtract from each label.
        num_classes: upper bound of the labels (exclusive); None for no bound.

    Attributes:
        unit: unit of `total`.
        per_bucket: units per shuffle bucket.
        max_megapixels: largest encoded image, in megapixels.
    """

    max_megapixels = MAX_MEGAPIXELS

    def __init__(
        self, total: int | None, labels_offset: int = 0, num_classes: int | None = None
    ):
        self.total, self._offset = total, labels_offset
        self._num_classes = num_classes

    def batches(
        self, output: Format, position: dict, batch_bytes: int
    ) -> Iterator[tuple[list[bytes], np.ndarray, dict, int]]:
        """Yields the records after a position; {} is the start of the input.

        Yields:
            complete records in the output's format; int64 `[n, 3]`, the length of each
            in bytes, the length of its payload, and its label; the position after them;
            the part of the input's `total` that they cover.

        Raises:
            ValueError: a record is invalid; the message names it.
        """
        records, table, size, done = [], [], 0, 0
        for item, place, units in self._items(position):
            try:
                record, length, label = self._record(item, output)
            except ValueError as error:
                raise ValueError(f"{self._before(place)}: {error}") from error
            if not 0 <= label < (self._num_classes or 1 << 63):
                raise label_error(label, self._before(place), self._num_classes)
            records.append(record)
            table.append((len(record), length, label))
            size, done = size + len(record), done + units
            if size >= batch_bytes or len(records) == _MOST_RECORDS:
                yield records, np.array(table, np.int64), place, done
                records, table, size, done = [], [], 0, 0
        if records:
            yield records, np.array(table, np.int64), place, done

    def _check(self, image):
        image_kind(image)
        if pixels := num_pixels(image, self.max_megapixels * 1e6):
            check_pixels(pixels, self.max_megapixels)

    def num_buckets(self) -> int:
        """Returns the number of shuffle buckets; depends only on the input."""
        number = math.ceil((self.total or UNKNOWN) / self.per_bucket)
        return min(max(number, 1), _MOST_BUCKETS)


class FilesInput(_Input):
    """Files with many records each.

    Args:
        form: the `Format` of the files.
        paths: the files in order, on any store.
        **labels: arguments of `_Input`.
    """

    unit, per_bucket = "bytes", 1 << 26

    def __init__(self, form: Format, paths: Sequence[str], **labels: int | None):
        self.form, self.paths = form, list(paths)
        super().__init__(sum(files.size(path) for path in self.paths), **labels)
        require(self.total, f"There are no records in {', '.join(self.paths[:3])}")

    def fingerprint(self) -> dict:
        """Returns facts that identify these files and change when the files change."""
        found = [[path, *files.stat(path)] for path in self.paths]
        labels = {"labels_offset": self._offset, "num_classes": self._num_classes}
        return {"files": found, **labels}

    def describe(self) -> dict:
        """Returns facts about the source for the manifest."""
        return {"layout": self.form.name, "files": self.paths}

    def _items(self, position):
        first = position.get("file", 0)
        start = position.get("offset", 0), position.get("record", self.form.first)
        for file, path in enumerate(self.paths[first:], first):
            begin = start[0]
            for number, end, record in self.form.read(path, *start):
                place = {"file": file, "offset": end, "record": number + 1}
                yield record, place, end - begin
                begin = end
            start = 0, self.form.first

    def _before(self, position):
        path = self.paths[position["file"]]
        return f"{path}, {self.form.unit} {position['record'] - 1}"

    def _record(self, item, output):
        image, label = self.form.unpack(item)
        self._check(image)
        label -= self._offset
        if self.form is TFRECORD and output is TFRECORD:
            # Examples keep their other features, and unchanged ones their checksums.
            record = tfrecord.with_label(item, label) if self._offset else item
            return record, len(record) - tfrecord.HEADER - tfrecord.FOOTER, label
        return *output.pack(image, label), label


class SourceInput(_Input):
    """Any source; arrays are encoded as PNG, encoded images are not changed.

    Args:
        source: the `Source`.
        identity: facts that identify the source, for resuming.
    """

    unit, per_bucket = "records", 1 << 13

    def __init__(self, source: Source, identity: dict):
        super().__init__(source.num_examples, num_classes=source.num_classes)
        self._source, self._identity = source, identity

    def fingerprint(self) -> dict:
        """Returns facts that identify this source; there are few for a stream."""
        facts = {**self._identity, "name": self._source.name, "count": self.total}
        if isinstance(self._source, IndexedSource):
            facts["content"] = self._source.fingerprint()
        return facts

    def describe(self) -> dict:
        """Returns facts about the source for the manifest."""
        return {"layout": "source", "name": self._source.name, **self._identity}

    def _items(self, position):
        first = position.get("record", 0)
        for number, record in enumerate(self._source.records(first), first + 1):
            image = to_picture(record.image, self._source.name, record.index)
            yield (image, record.label), {"record": number}, 1

    def _before(self, position):
        return self._source.describe(position["record"] - 1)

    def _record(self, item, output):
        image, label = item
        if isinstance(image, np.ndarray):
            image = encode(image[..., 0] if image.shape[2] == 1 else image)
        else:
            self._check(image)
        return *output.pack(image, label), label
