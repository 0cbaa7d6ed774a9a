"""What is converted, read in batches of records as the output has them.

An input knows how to go on after each batch, by a `position` that JSON can hold.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from PIL import Image

from plsc_tf.data.conversion.outputs import Base64Output, RecordOutput
from plsc_tf.data.readers.tfrecord import find_records
from plsc_tf.data.records import base64_text, tfrecord
from plsc_tf.data.source import IndexedSource, Source, label_error
from plsc_tf.storage import files

# Reading many small files waits for the disk more than for the processor.
_THREADS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Records in the output's form.

    Attributes:
        records: buffers, each a whole record.
        payload_bytes: of each record's payload.
        labels: of each record.
        position: where the input goes on.
        done: how much of the input's `total` this was.
    """

    records: Sequence
    payload_bytes: Sequence[int]
    labels: Sequence[int]
    position: dict
    done: int


class _FilesInput:
    """Files of many records each.

    Args:
        paths: the files, in order, on any store.
        labels_offset: subtracted from each label.
        num_classes: labels must be less than that; None: any.

    Attributes:
        total: bytes of all files.
        unit: what `total` counts.
    """

    unit = "bytes"

    def __init__(
        self,
        paths: Sequence[str],
        *,
        labels_offset: int = 0,
        num_classes: int | None = None,
    ):
        if not paths:
            raise ValueError("There are no files to convert.")
        self.paths = list(paths)
        self.total = sum(files.size(path) for path in self.paths)
        if not self.total:
            raise ValueError(f"{', '.join(self.paths[:3])}: no records to convert.")
        self._offset = labels_offset
        self._num_classes = num_classes

    def num_buckets(self) -> int:
        """Into how many parts to shuffle; follows from the input alone."""
        return _clamped(self.total / (64 << 20))

    def fingerprint(self) -> dict:
        """What tells these files from others, or from their older selves."""
        return {
            "files": [[path, files.size(path), _changed(path)] for path in self.paths],
            "labels_offset": self._offset,
            "num_classes": self._num_classes,
        }

    def describe(self) -> dict:
        """What the manifest says of the source."""
        return {"layout": self.layout, "files": self.paths}

    def _shifted(self, labels, where):
        if self._offset:
            labels = [label - self._offset for label in labels]
        return _checked(labels, self._num_classes, where)

    def spans(
        self, output: Base64Output | RecordOutput, batch_bytes: int
    ) -> Iterator[tuple[int, np.ndarray | None]]:
        """Yields where records stand in the files as the output shall have them.

        Returns:
            number of the file, and int64 [n, 4]: offset, bytes of the record, bytes of
            its payload, label; None where the output's records differ.
        """
        if output.layout != self.layout or self._offset:
            yield 0, None
            return
        for number, path in enumerate(self.paths):
            yield from ((number, table) for table in self._spans(path, batch_bytes))

    def _rest(self, position):
        """Yields (number of the file, path, offset in it, number of its record)."""
        first = position.get("file", 0)
        for number in range(first, len(self.paths)):
            at = position if number == first else {}
            yield number, self.paths[number], at.get("offset", 0), at.get("record", 0)


class Base64Input(_FilesInput):
    """PLSC's part files; their text is decoded only where the output is not such."""

    layout = "base64"

    def count(self) -> int:
        """The number of records; reads all files."""
        return sum(base64_text.count_lines(path) for path in self.paths)

    def batches(
        self, output: Base64Output | RecordOutput, position: dict, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yields what follows a position ({}: all)."""
        for number, path, offset, line in self._rest(position):
            for block in base64_text.read_blocks(path, batch_bytes, offset, line or 1):
                where = _place(path, "line", block.numbers)
                labels = self._shifted(block.labels, where)
                if output.layout == self.layout:
                    records, sizes = _lines(block, labels)
                else:
                    texts = map(block.text, range(len(labels)))
                    images = _each(texts, base64_text.decode, where)
                    records, sizes = output.pack(images, labels, where)
                at = {
                    "file": number,
                    "offset": block.offset,
                    "record": block.next_number,
                }
                yield Batch(records, sizes, labels, at, block.offset - offset)
                offset = block.offset

    def _spans(self, path, batch_bytes):
        offset = 0
        for block in base64_text.read_blocks(path, batch_bytes):
            labels = self._shifted(block.labels, _place(path, "line", block.numbers))
            table = None
            if not block.label_first:
                table = _whole_lines(block, labels, offset)
            yield table
            offset = block.offset


class RecordInput(_FilesInput):
    """TFRecord files; records keep their bytes and checksums where nothing changes."""

    layout = "tfrecord"

    def count(self) -> int:
        """The number of records, from their headers."""
        return sum(len(find_records(path)[0]) for path in self.paths)

    def batches(
        self, output: Base64Output | RecordOutput, position: dict, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yields what follows a position ({}: all)."""
        for number, path, offset, record in self._rest(position):
            for block in tfrecord.read_blocks(path, batch_bytes, offset, record):
                count = len(block.payloads)
                where = _place(path, "record", range(record, record + count))
                parsed = _each(block.payloads, tfrecord.parse_example, where)
                labels = self._shifted([label for _, label in parsed], where)
                records, sizes = self._packed(block, parsed, labels, output, where)
                record += count
                at = {"file": number, "offset": block.offset, "record": record}
                yield Batch(records, sizes, labels, at, block.offset - offset)
                offset = block.offset

    def _spans(self, path, batch_bytes):
        offset = record = 0
        for block in tfrecord.read_blocks(path, batch_bytes):
            where = _place(path, "record", range(record, record + len(block.payloads)))
            parsed = _each(block.payloads, tfrecord.parse_example, where)
            labels = self._shifted([label for _, label in parsed], where)
            lengths = np.array([len(frame) for frame in block.frames], np.int64)
            starts = offset + np.cumsum(lengths) - lengths
            around = tfrecord.HEADER + tfrecord.FOOTER
            yield np.stack([starts, lengths, lengths - around, labels], 1)
            offset, record = block.offset, record + len(labels)

    def _packed(self, block, parsed, labels, output, where):
        if output.layout != self.layout:
            return output.pack([image for image, _ in parsed], labels, where)
        if not self._offset:
            return block.frames, [len(payload) for payload in block.payloads]
        both = zip(block.payloads, labels, strict=True)
        return output.frame([tfrecord.with_label(*one) for one in both])


class SourceInput:
    """Any source. Arrays become PNG files, encoded images keep their bytes.

    Args:
        source: the `Source`.
        identity: what tells it from another one, for a conversion that is resumed.
    """

    layout = "source"
    unit = "records"

    def __init__(self, source: Source, identity: dict):
        self._source = source
        self._identity = identity
        self.total = source.num_examples

    def num_buckets(self) -> int:
        """Into how many parts to shuffle; follows from the input alone."""
        return _clamped((self.total or 1 << 21) / (1 << 13))

    def fingerprint(self) -> dict:
        """What tells this source from another; a stream leaves no trace of more."""
        told = {**self._identity, "name": self._source.name, "count": self.total}
        if isinstance(self._source, IndexedSource):
            told["content"] = self._source.fingerprint()
        return told

    def describe(self) -> dict:
        """What the manifest says of the source."""
        return {"layout": self.layout, "name": self._source.name, **self._identity}

    def count(self) -> int | None:
        """The number of records, None where nobody knows."""
        return self.total

    def batches(
        self, output: Base64Output | RecordOutput, position: dict, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yields what follows a position ({}: all)."""
        first = position.get("record", 0)
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            for group in _groups(self._records(first, pool), batch_bytes):
                start = first
                images = list(pool.map(_encoded, [image for image, _ in group]))
                labels = [label for _, label in group]

                def where(row, start=start):
                    return self._source.describe(start + row)

                labels = _checked(labels, self._source.num_classes, where)
                records, sizes = output.pack(images, labels, where)
                first += len(group)
                yield Batch(records, sizes, labels, {"record": first}, len(group))

    def _records(self, first, pool):
        """Yields (image, label), files read in threads where there are files."""
        table = getattr(self._source, "files", None)
        if table is None:
            for record in self._source.records(first):
                yield record.image, record.label
            return
        labels = self._source.labels
        for start in range(first, len(labels), 64):
            rows = range(start, min(start + 64, len(labels)))
            images = pool.map(_read_file, [table[row] for row in rows])
            yield from zip(images, labels[rows.start : rows.stop].tolist(), strict=True)


def _lines(block, labels):
    """Lines as they stand in a shard, and the lengths of their base64 text."""
    if block.label_first:
        records = [
            b"%s\t%d\n" % (block.text(row), label) for row, label in enumerate(labels)
        ]
        starts = block.cuts
        sizes = [e - s - 1 for s, e in zip(starts, block.ends, strict=True)]
        return records, sizes
    view, data, records = memoryview(block.data), block.data, []
    rows = zip(block.starts, block.cuts, block.ends, labels, strict=True)
    for start, cut, end, label in rows:
        text = b"\t%d\n" % label
        if data[cut : end + 1] == text:
            records.append(view[start : end + 1])
        else:
            records.append(data[start:cut] + text)
    sizes = [c - s for s, c in zip(block.starts, block.cuts, strict=True)]
    return records, sizes


def _whole_lines(block, labels, offset):
    """Spans of the lines of a block, None if one is not as the output writes it."""
    columns = block.starts, block.cuts, block.ends, labels
    starts, cuts, ends, labels = (np.array(column, np.int64) for column in columns)
    following = np.append(starts[1:], block.offset - offset)
    digits = 1 + (labels[:, None] >= 10 ** np.arange(1, 19)).sum(1)
    exact = (following == ends + 1) & (ends - cuts - 1 == digits)
    if not exact.all() or not block.data.endswith(b"\n", 0, block.offset - offset):
        return None
    return np.stack([starts + offset, ends + 1 - starts, cuts - starts, labels], 1)


def _each(items, function, where):
    """Applies a function to each record's bytes; errors name the record."""
    found = []
    try:
        for item in items:
            found.append(function(item))
    except ValueError as error:
        raise ValueError(f"{where(len(found))}: {error}") from error
    return found


def _place(path, noun, numbers) -> Callable[[int], str]:
    return lambda row: f"{path}, {noun} {numbers[row]}"


def _checked(labels, num_classes, where):
    """The labels, when all lie in [0, num_classes)."""
    if not labels:
        return labels
    limit = 1 << 63 if num_classes is None else num_classes
    if min(labels) < 0 or max(labels) >= limit:
        row = next(k for k, label in enumerate(labels) if not 0 <= label < limit)
        raise label_error(labels[row], where(row), limit)
    return labels


def _groups(records, batch_bytes):
    """Yields lists of records, of about so many bytes of images."""
    group, size = [], 0
    for image, label in records:
        group.append((image, label))
        size += len(image) if isinstance(image, bytes) else image.nbytes
        if size >= batch_bytes or len(group) >= 1 << 14:
            yield group
            group, size = [], 0
    if group:
        yield group


def _encoded(image):
    """The bytes of an image; arrays become PNG files, which lose nothing."""
    if isinstance(image, bytes):
        return image
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise ValueError(
            "Expected pictures as uint8 [height, width, 1 or 3]. Received: "
            f"{image.dtype} {image.shape}."
        )
    stream = io.BytesIO()
    Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image).save(
        stream, "PNG"
    )
    return stream.getvalue()


def _read_file(path):
    if files.is_local(path):
        with open(path, "rb") as stream:
            return stream.read()
    return files.read(path)


def _changed(path):
    """When a local file changed last, in nanoseconds; 0 elsewhere."""
    return os.stat(path).st_mtime_ns if files.is_local(path) else 0


def _clamped(buckets):
    return int(min(max(np.ceil(buckets), 1), 512))
