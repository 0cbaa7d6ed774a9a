"""Images packed into files (TFRecord, base64, RecordIO), past damaged ones."""

from __future__ import annotations

from collections.abc import Iterator

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.listing import Item, Listing
from plsc_tf.data.lines import read_lines
from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.recordio import ImageFinder, index_path
from plsc_tf.data.records import base64_text, recordio, tfrecord
from plsc_tf.data.records.packed_files import RandomAccessFile
from plsc_tf.storage import files


class _PackedFiles(Listing):
    """Several files, one after the other; damage within one does not hide the next."""

    unit = "record"

    def __init__(self, layout: layouts.TfrecordLayout | layouts.Base64Layout):
        super().__init__()
        self._files = layout.files
        first, last = self._files[0], self._files[-1]
        self.name = first if len(self._files) == 1 else f"{first} ... {last}"

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        file, number = map(int, self._place(index).split())
        return f"{self._files[file]}, {self.unit} {number}"

    def _items(self, findings):
        sizes = [files.size(file) for file in self._files]
        before, total = 0, max(sum(sizes), 1)
        for place, file in enumerate(self._files):
            try:
                for number, position, item in self._file_items(file, sizes[place]):
                    item.place = b"%d %d" % (place, number)
                    item.share = min((before + position) / total, 1.0)
                    yield item
            except (ValueError, EOFError) as error:
                # The rest of a file whose framing is lost.
                findings.add(kinds.DAMAGED_RECORD, file, str(error))
            before += sizes[place]

    def _file_items(self, file: str, size: int) -> Iterator[tuple[int, int, Item]]:
        """Yields (number of the record or line, byte, item)."""
        raise NotImplementedError


class TfrecordImages(_PackedFiles):
    """TFRecord files with FastNN's keys."""

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


class Base64Images(_PackedFiles):
    """Part files of base64 text, either column first."""

    unit = "line"

    def _file_items(self, file, size):
        try:
            label_first = base64_text.column_order(file)
        except ValueError:
            # The order is then decided line by line.
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
        super().__init__()
        self.name = layout.rec
        self._file = RandomAccessFile(layout.rec)
        self._finder = ImageFinder(self._file, index_path(layout.rec))

    @property
    def num_classes(self) -> int | None:
        """The number in record 0, from the first item on."""
        return self._finder.num_classes

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        return f"{self.name}, record {self._place(index).decode()}"

    def _items(self, findings):
        share, images = 0.0, 0
        try:
            for image in self._finder.find():
                if image.error is not None:
                    item = Item(fault=_fault(image), detail=str(image.error))
                else:
                    share = min(image.span.end / self._file.size, 1.0)
                    item = Item(image.label, content=self._content(image))
                images, item.share, item.place = images + 1, share, b"%d" % image.key
                yield item
        except ValueError as error:
            findings.add(kinds.DAMAGED_RECORD, self.name, str(error))
        expected = self._finder.num_images
        if expected is not None and expected > images:
            findings.add(
                kinds.MISSING_RECORDS,
                self.name,
                f"record 0 counts {expected} images, there are {images}",
                expected - images,
            )

    def _content(self, image) -> bytes:
        if image.span.parts > 1:
            data = recordio.read_record(self._file, image.span)
            return data[image.header.size :]
        begin, length = image.place
        return self._file.read(begin, length)


def _fault(image) -> kinds.Kind:
    if image.header is None:
        return kinds.DAMAGED_RECORD
    if image.span.length == image.header.size:
        return kinds.EMPTY
    return kinds.LABEL_NOT_WHOLE
