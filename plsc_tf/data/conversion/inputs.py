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
        pack: function of (encoded images, labels, function that names the image at an
            index, for errors) that returns records and the lengths of their payloads.
        file_list: name of a file that lists the shards, or "" for no such file.
    """

    layout: str
    header_bytes: int
    shard_name: str
    pack: Callable[[Sequence[bytes], Sequence[int], Callable], tuple[list, list]]
    file_list: str = ""


def _pack_lines(images, labels, where):
    del where
    records = list(map(base64_text.encode_line, images, labels))
    return records, [4 * ((len(image) + 2) // 3) for image in images]


def _pack_examples(images, labels, where):
    kinds = []
    for number, image in enumerate(images):
        matches = [k for start, k in _BEGINNINGS.items() if image.startswith(start)]
        if not matches:
            raise ValueError(
                f"{where(number)} is not a JPEG, PNG or GIF file: it begins with "
                f"{bytes(image[:8])!r}. `python -m plsc_tf.check` lists all such files."
            )
        kinds += matches
    return _frames(list(map(tfrecord.encode_example, images, kinds, labels)))


def _frames(payloads):
    return list(map(tfrecord.frame, payloads)), list(map(len, payloads))


# PLSC's `base64<TAB>label` lines, and TFRecord examples with FastNN's keys.
OUTPUTS = {
    "base64": Output("base64", 0, "base64_rank_{0}", _pack_lines, "file_list.txt"),
    "tfrecord": Output(
        "tfrecord", tfrecord.HEADER, "part-{0:05d}-of-{1:05d}.tfrecord", _pack_examples
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Records in the output's format.

    Attributes:
        records: buffers with one complete record each.
        table: int64 `[n, 3]`: length of the record in bytes, length of its payload,
            label.
        position: input position after this batch.
        done: the part of the input's `total` that this batch covers.
    """

    records: Sequence
    table: np.ndarray
    position: dict
    done: int


class _FilesInput:
    """Base class of inputs that read files with many records each.

    Args:
        paths: the files in order, on any store.
        labels_offset: number to subtract from each label.
        num_classes: upper bound of the labels (exclusive); None for no bound.

    Attributes:
        total: size of all files in bytes.
        unit: unit of `total`.
    """

    unit = "bytes"

    def __init__(
        self,
        paths: Sequence[str],
        *,
        labels_offset: int = 0,
        num_classes: int | None = None,
    ):
        self.paths = list(paths)
        self.total = sum(files.size(path) for path in self.paths)
        if not self.total:
            raise ValueError(f"There are no records in {', '.join(self.paths[:3])}.")
        self._offset = labels_offset
        self._num_classes = num_classes

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

    def batches(
        self, output: Output, position: dict, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yields the records after a position; {} is the start of the input."""
        first = position.get("file", 0)
        for number, path in enumerate(self.paths[first:], first):
            start = position if number == first else {}
            offset, record = start.get("offset", 0), start.get("record", 0)
            blocks = self._blocks(path, output, batch_bytes, offset, record)
            for records, sizes, labels, end, record in blocks:
                place = {"file": number, "offset": end, "record": record}
                yield Batch(
                    records, _table(records, sizes, labels), place, end - offset
                )
                offset = end

    def _shifted(self, labels, where):
        if self._offset:
            labels = [label - self._offset for label in labels]
        return _checked(labels, self._num_classes, where)


class Base64Input(_FilesInput):
    """PLSC's base64 files; their text is decoded only if the output format differs."""

    layout = "base64"

    def _blocks(self, path, output, batch_bytes, offset, line):
        """Yields (records, payload lengths, labels, end position, next line)."""
        for block in base64_text.read_blocks(path, batch_bytes, offset, line or 1):
            where = _describe_record(path, "line", block.numbers)
            labels = self._shifted(block.labels, where)
            texts = block.texts
            if output.layout == self.layout:
                rows = zip(texts, labels, strict=True)
                records = [b"%s\t%d\n" % row for row in rows]
                sizes = list(map(len, texts))
            else:
                images = _map_records(texts, base64_text.decode, where)
                records, sizes = output.pack(images, labels, where)
            yield records, sizes, labels, block.offset, block.next_number


class RecordInput(_FilesInput):
    """TFRecord files; unchanged records are copied with their checksums."""

    layout = "tfrecord"

    def _blocks(self, path, output, batch_bytes, offset, record):
        """Yields (records, payload lengths, labels, end position, next record)."""
        for block in tfrecord.read_blocks(path, batch_bytes, offset, record):
            following = record + len(block.payloads)
            where = _describe_record(path, "record", range(record, following))
            parsed = _map_records(block.payloads, tfrecord.parse_example, where)
            labels = self._shifted([label for _, label in parsed], where)
            if output.layout != self.layout:
                packed = output.pack([image for image, _ in parsed], labels, where)
            elif self._offset:
                packed = _frames(list(map(tfrecord.with_label, block.payloads, labels)))
            else:
                packed = block.frames, list(map(len, block.payloads))
            yield *packed, labels, block.offset, following
            record = following


class SourceInput:
    """Any source; arrays are encoded as PNG, encoded images are not changed.

    Args:
        source: the `Source`.
        identity: facts that identify the source, for resuming.
    """

    layout = "source"
    unit = "records"

    def __init__(self, source: Source, identity: dict):
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

    def batches(
        self, output: Output, position: dict, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yields the records after a position; {} is the start of the input."""
        first = position.get("record", 0)
        for group in _groups(self._source.records(first), batch_bytes):

            def where(row, start=first):
                return self._source.describe(start + row)

            images = [_encoded(record.image) for record in group]
            labels = [record.label for record in group]
            labels = _checked(labels, self._source.num_classes, where)
            records, sizes = output.pack(images, labels, where)
            first += len(group)
            table = _table(records, sizes, labels)
            yield Batch(records, table, {"record": first}, len(group))


def _table(records, sizes, labels):
    return np.array([list(map(len, records)), sizes, labels], np.int64).T


def _map_records(items, function, where):
    """Applies a function to each item; errors name the item's record."""
    results = []
    try:
        for item in items:
            results.append(function(item))
    except ValueError as error:
        raise ValueError(f"{where(len(results))}: {error}") from error
    return results


def _describe_record(path, noun, numbers) -> Callable[[int], str]:
    return lambda row: f"{path}, {noun} {numbers[row]}"


def _checked(labels, num_classes, where):
    """Returns the labels if all are in [0, num_classes)."""
    limit = num_classes or 1 << 63
    if labels and (min(labels) < 0 or max(labels) >= limit):
        row = next(k for k, label in enumerate(labels) if not 0 <= label < limit)
        raise label_error(labels[row], where(row), num_classes)
    return labels


def _groups(records, batch_bytes):
    """Yields lists of records with about `batch_bytes` bytes of images each."""
    group, size = [], 0
    for record in records:
        group.append(record)
        size += memoryview(record.image).nbytes
        if size >= batch_bytes or len(group) >= _MOST_RECORDS:
            yield group
            group, size = [], 0
    if group:
        yield group


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
