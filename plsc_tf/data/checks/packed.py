"""Pictures packed into files (TFRecord, base64, RecordIO), past damaged ones."""

from __future__ import annotations

import array
from collections.abc import Iterator

import numpy as np

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listing import Item, Listing
from plsc_tf.data.lines import read_lines
from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.recordio import ImageFinder, index_path
from plsc_tf.data.records import base64_text, recordio, tfrecord
from plsc_tf.data.records.packed_files import RandomAccessFile
from plsc_tf.storage import files


class _Files(Listing):
    """Several files, one after the other; what is damaged within one stays there."""

    unit = "record"

    def __init__(self, paths: tuple[str, ...]):
        self.name = paths[0] if len(paths) == 1 else f"{paths[0]} ... {paths[-1]}"
        self._files = paths
        self._sizes = [files.size(path) for path in paths]
        self._firsts = array.array("q")
        self._numbers = array.array("q")

    def items(self, findings: Findings) -> Iterator[Item]:
        """See `Listing.items`."""
        before, total = 0, max(sum(self._sizes), 1)
        for file, size in zip(self._files, self._sizes, strict=True):
            self._firsts.append(len(self._numbers))
            try:
                for number, position, item in self._file_items(file, size):
                    self._numbers.append(number)
                    self.fraction = min((before + position) / total, 1.0)
                    yield item
            except (ValueError, EOFError) as error:
                # The rest of a file whose framing is lost.
                findings.add(kinds.DAMAGED_RECORD, file, str(error))
            before += size

    def _file_items(self, file: str, size: int) -> Iterator[tuple[int, int, Item]]:
        """Yields (number of the record or line, byte, item)."""
        raise NotImplementedError

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        file = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return f"{self._files[file]}, {self.unit} {self._numbers[index]}"


class TfrecordImages(_Files):
    """TFRecord files with FastNN's keys."""

    def __init__(self, layout: layouts.TfrecordLayout):
        super().__init__(layout.files)

    def _file_items(self, file, size):
        stream, position, number = RandomAccessFile(file), 0, 0
        while position < size:
            header = stream.read(position, tfrecord.HEADER)
            length = tfrecord.payload_length(header, file, number, position, size)
            length += tfrecord.FOOTER
            data = stream.read(position + tfrecord.HEADER, length)
            yield number, position, _tfrecord_item(data)
            position += tfrecord.HEADER + length
            number += 1


def _tfrecord_item(record: bytes) -> Item:
    if not tfrecord.is_intact(record):
        return Item(fault=kinds.DAMAGED_RECORD, detail="its checksum is wrong")
    try:
        image, label = tfrecord.parse_example(record[: -tfrecord.FOOTER])
    except ValueError as error:
        return Item(fault=kinds.DAMAGED_RECORD, detail=str(error))
    return Item(label, content=image)


class Base64Images(_Files):
    """Part files of base64 text, either column first."""

    unit = "line"

    def __init__(self, layout: layouts.Base64Layout):
        super().__init__(layout.files)

    def _file_items(self, file, size):
        try:
            label_first = base64_text.column_order(file)
        except ValueError:
            # Each line tells its own order, or is a fault.
            label_first = None
        position = 0
        for number, line in read_lines(file, base64_text.LONGEST_LINE):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            position += len(line) + 1
            if line.strip():
                yield number, position, _base64_item(line, label_first)


def _base64_item(line: bytes, label_first: bool | None) -> Item:
    try:
        text, label = base64_text.parse_line(line, label_first)
        return Item(label, content=base64_text.decode(text))
    except ValueError as error:
        return Item(fault=kinds.BAD_LINE, detail=str(error))


class RecordioImages(Listing):
    """The images of a .rec file."""

    def __init__(self, layout: layouts.RecordioLayout):
        self.name = layout.rec
        self._file = RandomAccessFile(layout.rec)
        self._finder = ImageFinder(self._file, index_path(layout.rec))
        self._keys = array.array("q")

    @property
    def num_classes(self) -> int | None:
        """What record 0 says, from the first item on."""
        return self._finder.num_classes

    def items(self, findings: Findings) -> Iterator[Item]:
        """See `Listing.items`."""
        try:
            for found in self._finder.find():
                self._keys.append(found.key)
                if found.error is not None:
                    yield Item(fault=_record_fault(found), detail=str(found.error))
                    continue
                self.fraction = min(found.span.end / self._file.size, 1.0)
                yield Item(found.label, content=self._content(found))
        except ValueError as error:
            findings.add(kinds.DAMAGED_RECORD, self.name, str(error))
        counted = self._finder.num_images
        if counted is not None and counted > len(self._keys):
            findings.add(
                kinds.MISSING_RECORDS,
                self.name,
                f"record 0 counts {counted} images, there are {len(self._keys)}",
                counted - len(self._keys),
            )

    def _content(self, found) -> bytes:
        if found.span.parts > 1:
            data = recordio.read_record(self._file, found.span)
            return data[found.header.size :]
        begin, length = found.place
        return self._file.read(begin, length)

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        return f"{self.name}, record {self._keys[index]}"


def _record_fault(found) -> kinds.Kind:
    if found.header is None:
        return kinds.DAMAGED_RECORD
    if found.span.length == found.header.size:
        return kinds.EMPTY
    return kinds.LABEL_NOT_WHOLE
