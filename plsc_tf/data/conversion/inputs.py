"""Inputs of a conversion, read in batches of records in the output's format.

Reading can resume after each batch from the batch's `position`, which can be stored as
JSON.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from plsc_tf.data.image_limit import MAX_MEGAPIXELS, check_pixels, num_pixels
from plsc_tf.data.images import encode
from plsc_tf.data.readers import base64_text, tfrecord
from plsc_tf.data.readers.python import to_picture
from plsc_tf.data.source import IndexedSource, Source, label_error
from plsc_tf.requirements import require
from plsc_tf.storage import files, oss

_MOST_BUCKETS = 512
# Guess for the number of records of a source of unknown length.
UNKNOWN = 1 << 21
_MOST_RECORDS = 1 << 14
# Leading bytes of the formats that `plsc_tf.data.images.decode` supports.
_BEGINNINGS = {b"\xff\xd8\xff": b"jpeg", b"\x89PNG\r\n\x1a\n": b"png", b"GIF8": b"gif"}


@dataclasses.dataclass(frozen=True)
class Output:
    """An output format.

    Attributes:
        layout: name of the format.
        header_bytes: number of bytes of a record before its payload.
        shard_name: format string for a shard's name, with the number of the shard and
            the number of shards.
        pack: function of (encoded image, label) that returns a record and the length of
            its payload; raises ValueError if the format cannot hold the image.
        file_list: name of a file that lists the shards, or "" for no such file.
    """

    layout: str
    header_bytes: int
    shard_name: str
    pack: Callable[[bytes, int], tuple[bytes, int]]
    file_list: str = ""


def _pack_line(image, label):
    _kind(image)
    return base64_text.encode_line(image, label), 4 * ((len(image) + 2) // 3)


def _pack_example(image, label):
    payload = tfrecord.encode_example(image, _kind(image), label)
    return tfrecord.frame(payload), len(payload)


def _kind(image):
    """Returns an image's format; a list could name a private file of its reader."""
    for beginning, kind in _BEGINNINGS.items():
        if image.startswith(beginning):
            return kind
    raise ValueError(
        "expected a JPEG, PNG or GIF file. Received: bytes that begin with "
        f"{image[:8]!r}. `python -m plsc_tf.check` lists all such files."
    )


# PLSC's `base64<TAB>label` lines, and TFRecord examples with FastNN's keys.
OUTPUTS = {
    "base64": Output("base64", 0, "base64_rank_{0}", _pack_line, "file_list.txt"),
    "tfrecord": Output(
        "tfrecord", tfrecord.HEADER, "part-{0:05d}-of-{1:05d}.tfrecord", _pack_example
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Records in the output's format.

    Attributes:
        records: one complete record each.
        table: int64 `[n, 3]`: length of the record in bytes, length of its payload,
            label.
        position: input position after this batch.
        done: the part of the input's `total` that this batch covers.
    """

    records: Sequence[bytes]
    table: np.ndarray
    position: dict
    done: int


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
        self, output: Output, position: dict, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yields the records after a position; {} is the start of the input.

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
                yield Batch(records, np.array(table, np.int64), place, done)
                records, table, size, done = [], [], 0, 0
        if records:
            yield Batch(records, np.array(table, np.int64), place, done)

    def _check(self, image):
        if pixels := num_pixels(image):  # Other bytes are left to the output format.
            check_pixels(pixels, self.max_megapixels)

    def num_buckets(self) -> int:
        """Returns the number of shuffle buckets; depends only on the input."""
        number = math.ceil((self.total or UNKNOWN) / self.per_bucket)
        return min(max(number, 1), _MOST_BUCKETS)


class _FilesInput(_Input):
    """Base class of inputs that read files with many records each.

    Args:
        paths: the files in order, on any store.
        **labels: arguments of `_Input`.
    """

    unit, per_bucket = "bytes", 1 << 26

    def __init__(self, paths: Sequence[str], **labels: int | None):
        self.paths = list(paths)
        super().__init__(sum(files.size(path) for path in self.paths), **labels)
        require(self.total, f"There are no records in {', '.join(self.paths[:3])}")

    def fingerprint(self) -> dict:
        """Returns facts that identify these files and change when the files change."""
        found = [[path, files.size(path), _changed(path)] for path in self.paths]
        labels = {"labels_offset": self._offset, "num_classes": self._num_classes}
        return {"files": found, **labels}

    def describe(self) -> dict:
        """Returns facts about the source for the manifest."""
        return {"layout": self.layout, "files": list(map(oss.masked, self.paths))}

    def _items(self, position):
        first = position.get("file", 0)
        start = position.get("offset", 0), position.get("record", self.first)
        for file, path in enumerate(self.paths[first:], first):
            begin = start[0]
            for number, end, record in self.read(path, *start):
                place = {"file": file, "offset": end, "record": number + 1}
                yield record, place, end - begin
                begin = end
            start = 0, self.first

    def _before(self, position):
        path = self.paths[position["file"]]
        return f"{path}, {self.noun} {position['record'] - 1}"


class Base64Input(_FilesInput):
    """PLSC's base64 files."""

    layout, noun, first = "base64", "line", 1
    read = staticmethod(base64_text.read_lines)

    def _record(self, item, output):
        image, label = base64_text.unpack(item)
        self._check(image)
        label -= self._offset
        return *output.pack(image, label), label


class RecordInput(_FilesInput):
    """TFRecord files; unchanged records are copied with their checksums."""

    layout, noun, first = "tfrecord", "record", 0
    read = staticmethod(tfrecord.read_records)

    def _record(self, item, output):
        payload = tfrecord.payload_of(item[tfrecord.HEADER :])
        image, label = tfrecord.parse_example(payload)
        self._check(image)
        label -= self._offset
        if output.layout != self.layout:
            return *output.pack(image, label), label
        if self._offset:
            payload = tfrecord.with_label(payload, label)
            item = tfrecord.frame(payload)
        return item, len(payload), label


class SourceInput(_Input):
    """Any source; arrays are encoded as PNG, encoded images are not changed.

    Args:
        source: the `Source`.
        identity: facts that identify the source, for resuming.
    """

    layout = "source"
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
        return {"layout": self.layout, "name": self._source.name, **self._identity}

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


def _changed(path):
    """Returns a local file's modification time in nanoseconds; 0 for other files."""
    return os.stat(path).st_mtime_ns if files.is_local(path) else 0
