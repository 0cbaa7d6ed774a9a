"""Inputs of a conversion, read in batches of records in the output's format.

Reading can resume after each batch from the batch's `position`, which can be stored as
JSON.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from plsc_tf.data.images import encode
from plsc_tf.data.readers import base64_text, tfrecord
from plsc_tf.data.source import IndexedSource, Source, label_error
from plsc_tf.storage import files

_MOST_BUCKETS = 512
_BUCKET_BYTES, _BUCKET_RECORDS = 1 << 26, 1 << 13
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
    return base64_text.encode_line(image, label), 4 * ((len(image) + 2) // 3)


def _pack_example(image, label):
    for beginning, kind in _BEGINNINGS.items():
        if image.startswith(beginning):
            return _framed(tfrecord.encode_example(image, kind, label))
    raise ValueError(
        "expected a JPEG, PNG or GIF file. Received: bytes that begin with "
        f"{image[:8]!r}. `python -m plsc_tf.check` lists all such files."
    )


def _framed(payload):
    return tfrecord.frame(payload), len(payload)


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

    Args:
        labels_offset: number to subtract from each label.
        num_classes: upper bound of the labels (exclusive); None for no bound.

    Attributes:
        total: size of the input, or None if unknown.
        unit: unit of `total`.
    """

    def __init__(self, labels_offset: int = 0, num_classes: int | None = None):
        self._offset, self._num_classes = labels_offset, num_classes

    def batches(
        self, output: Output, position: dict, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yields the records after a position; {} is the start of the input.

        Raises:
            ValueError: a record is invalid; the message names it.
        """
        records, table, size, done = [], [], 0, 0
        for item, place, units in self._items(position):
            record, *row = self._convert(item, output, place)
            records.append(record)
            table.append((len(record), *row))
            size, done = size + len(record), done + units
            if size >= batch_bytes or len(records) == _MOST_RECORDS:
                yield Batch(records, np.array(table, np.int64), place, done)
                records, table, size, done = [], [], 0, 0
        if records:
            yield Batch(records, np.array(table, np.int64), place, done)

    def _convert(self, item, output, place):
        """Returns (record, length of its payload, label)."""
        try:
            content, label = self._unpack(item)
            label -= self._offset
            in_range = 0 <= label < (self._num_classes or 1 << 63)
            if in_range:
                return *self._pack(content, label, output), label
        except ValueError as error:
            raise ValueError(f"{self._before(place)}: {error}") from error
        raise label_error(label, self._before(place), self._num_classes)

    def _items(self, position) -> Iterator[tuple]:
        """Yields (item, position after it, number of units of `total` in it)."""
        raise NotImplementedError

    def _before(self, position) -> str:
        """Describes the item before a position."""
        raise NotImplementedError

    def _unpack(self, item):
        """Returns (content for `_pack`, label)."""
        raise NotImplementedError

    def _pack(self, content, label, output):
        """Returns a record and the length of its payload."""
        return output.pack(content, label)


class _FilesInput(_Input):
    """Base class of inputs that read files with many records each.

    Args:
        paths: the files in order, on any store.
        **labels: arguments of `_Input`.
    """

    unit = "bytes"

    def __init__(self, paths: Sequence[str], **labels: int | None):
        super().__init__(**labels)
        self.paths = list(paths)
        self.total = sum(files.size(path) for path in self.paths)
        if not self.total:
            raise ValueError(f"There are no records in {', '.join(self.paths[:3])}.")

    def num_buckets(self) -> int:
        """Returns the number of shuffle buckets; depends only on the input."""
        return _buckets(self.total / _BUCKET_BYTES)

    def fingerprint(self) -> dict:
        """Returns facts that identify these files and change when the files change."""
        return {
            "files": [[path, files.size(path), _changed(path)] for path in self.paths],
            "labels_offset": self._offset,
            "num_classes": self._num_classes,
        }

    def describe(self) -> dict:
        """Returns facts about the source for the manifest."""
        return {"layout": self.layout, "files": self.paths}

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
    """PLSC's base64 files; their text is decoded only if the output format differs."""

    layout, noun, first = "base64", "line", 1
    read = staticmethod(base64_text.read_lines)
    _unpack = staticmethod(base64_text.parse_line)

    def _pack(self, content, label, output):
        if output.layout == self.layout:
            return b"%s\t%d\n" % (content, label), len(content)
        return output.pack(base64_text.decode(content), label)


class RecordInput(_FilesInput):
    """TFRecord files; unchanged records are copied with their checksums."""

    layout, noun, first = "tfrecord", "record", 0
    read = staticmethod(tfrecord.read_records)

    def _unpack(self, item):
        payload = tfrecord.payload_of(item[tfrecord.HEADER :])
        image, label = tfrecord.parse_example(payload)
        return (item, payload, image), label

    def _pack(self, content, label, output):
        record, payload, image = content
        if output.layout != self.layout:
            return output.pack(image, label)
        if self._offset:
            return _framed(tfrecord.with_label(payload, label))
        return record, len(payload)


class SourceInput(_Input):
    """Any source; arrays are encoded as PNG, encoded images are not changed.

    Args:
        source: the `Source`.
        identity: facts that identify the source, for resuming.
    """

    layout = "source"
    unit = "records"

    def __init__(self, source: Source, identity: dict):
        super().__init__(num_classes=source.num_classes)
        self._source = source
        self._identity = identity
        self.total = source.num_examples

    def num_buckets(self) -> int:
        """Returns the number of shuffle buckets; depends only on the input."""
        return _buckets((self.total or UNKNOWN) / _BUCKET_RECORDS)

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
            yield record, {"record": number}, 1

    def _before(self, position):
        return self._source.describe(position["record"] - 1)

    def _unpack(self, item):
        return _encoded(item.image), item.label


def _encoded(image):
    if isinstance(image, bytes):
        return image
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise ValueError(
            "Images must be uint8 [height, width, 1 or 3]. Received: "
            f"{image.dtype} {image.shape}."
        )
    return encode(image[..., 0] if image.shape[2] == 1 else image)


def _changed(path):
    """Returns a local file's modification time in nanoseconds; 0 for other files."""
    return os.stat(path).st_mtime_ns if files.is_local(path) else 0


def _buckets(number):
    return int(min(max(np.ceil(number), 1), _MOST_BUCKETS))
