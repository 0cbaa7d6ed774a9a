"""All images of a data set in order, past whatever is wrong with some of them."""

from __future__ import annotations

import array
import dataclasses
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data import load as data_load
from plsc_tf.data import paths
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.readers import (
    base64_text,
    class_folders,
    image_list,
    layouts,
    tfrecord,
)
from plsc_tf.data.readers.packed import RandomAccessFile
from plsc_tf.data.readers.recordio import ImageFinder
from plsc_tf.data.request import DataRequest
from plsc_tf.data.sampling import FILE_ORDER
from plsc_tf.data.source import IndexedSource, dense
from plsc_tf.storage import files

# What sources raise when an example cannot be read.
_FAULTS = (tf.errors.OpError, ValueError, OSError, EOFError)


@dataclasses.dataclass(slots=True)
class Item:
    """One image, or something that should be one.

    Attributes:
        label: as in training; None if it cannot be read.
        path: of its file, if it has one.
        content: its bytes or pixels, if it has no file.
        fault: the kind of problem, if there is neither.
        detail: of the fault.
        place: a short text from which the listing describes the item.
        share: of the whole that is read up to here, 0 ... 1.
    """

    label: int | None = None
    path: bytes | None = None
    content: bytes | np.ndarray | None = None
    fault: str | None = None
    detail: str = ""
    place: bytes = b""
    share: float = 0.0


class Listing:
    """The images of a data set.

    Args:
        layout: of its files.
        name: of the list, folder or files.
        folder: that the paths of a list are relative to; None without files.

    Attributes:
        num_classes: labels must be below it; None: unknown. Some files tell it only
            when they are read.
        heeds: as of `plsc_tf.data.source.Source`.
    """

    def __init__(self, layout: layouts.Layout, name: str, folder: str | None = None):
        self.name, self.folder = name, folder
        self.num_classes, self.heeds = layout.request.num_classes, layout.heeds
        self._layout = layout
        # Many short texts: 8 bytes each besides their own.
        self._places, self._ends = bytearray(), array.array("q", [0])

    def items(self, findings: Findings) -> Iterator[Item]:
        """Yields all items; what belongs to no item is added to the findings."""
        offset = 0
        if self.heeds is not None and "labels_offset" in self.heeds:
            offset = self._layout.request.labels_offset
        for item in self._items(findings):
            if item.label is not None:
                item.label -= offset
            self._places += item.place
            self._ends.append(len(self._places))
            yield item

    def describe(self, index: int) -> str:
        """Names an item that was listed."""
        raise NotImplementedError

    def path(self, index: int) -> bytes:
        """Returns the path of an item below `folder`."""
        return self._place(index)

    def _items(self, findings: Findings) -> Iterator[Item]:
        raise NotImplementedError

    def _place(self, index):
        return bytes(self._places[self._ends[index] : self._ends[index + 1]])


class ListedImages(Listing):
    """The lines of an image list."""

    def __init__(self, layout: layouts.ImageListLayout):
        name = image_list.require_list(layout.folder, layout.list_name)
        super().__init__(layout, name, layout.folder)

    def describe(self, index):
        """See `Listing.describe`."""
        number, _, path = self._place(index).decode(errors="replace").partition(" ")
        return f"{self.name}, line {number} ({path})"

    def path(self, index):
        """See `Listing.path`."""
        return self._place(index).partition(b" ")[2]

    def _items(self, findings):
        size, done = max(files.size(self.name), 1), 0
        root = os.fsencode(paths.join(self.folder, ""))
        try:
            for number, path, label, text in image_list.lines(self.name):
                path = path or b""
                item = Item(label, root + path)
                if label is None:
                    fault = "label_not_whole" if path else "bad_line"
                    item = Item(fault=fault, detail=repr(text.decode(errors="replace")))
                # A line: path, space, label, end.
                done += len(path) + len(str(label)) + 2
                item.share = min(done / size, 1.0)
                item.place = b"%d %b" % (number, path)
                yield item
        except ValueError as error:
            findings.add("bad_line", self.name, str(error))


class FolderImages(Listing):
    """The files in class folders."""

    def __init__(self, layout: layouts.ClassFoldersLayout):
        paths.require_folder(layout.folder)
        super().__init__(layout, layout.folder, layout.folder)

    def describe(self, index):
        """See `Listing.describe`."""
        return paths.join(self.folder, self._place(index).decode(errors="replace"))

    def _items(self, findings):
        least = self._layout.request.min_images_per_class
        chosen = self._layout.images or (lambda path: True)
        classes, others, _ = class_folders.scan(self.folder, self._layout.keep)
        for path in others:
            findings.add("file_not_read", path)
        for file in classes.pop("", ()):
            findings.add("outside_classes", file)
        names = class_folders.require_classes(self.folder, classes, least)
        limit = self.num_classes = self.num_classes or len(names)
        if len(names) > limit:
            detail = f"{len(names)} class folders, num_classes={limit}"
            findings.add("too_many_classes", self.name, detail, len(names) - limit)
        root = os.fsencode(paths.join(self.folder, ""))
        done, total = 0, sum(len(classes[name]) for name in names)
        for label, name in enumerate(names):
            for file in classes[name]:
                done += 1
                if chosen(f"{name}/{file}"):
                    path = os.fsencode(f"{name}/{file}")
                    yield Item(label, root + path, place=path, share=done / total)


class ArrayImages(Listing):
    """Files of pixels that are read as a whole."""

    def __init__(self, layout: layouts.ArraysLayout):
        super().__init__(layout, layout.name)
        self.num_classes = self.num_classes or layout.num_classes
        self.describe = layout.describe

    def _items(self, findings):
        try:
            images, labels = self._layout.load()
        except ValueError as error:
            findings.add("damaged_record", self.name, str(error))
            return
        for index, label in enumerate(labels.tolist()):
            yield Item(label, content=images[index], share=(index + 1) / len(labels))


class SourceImages(Listing):
    """The examples of a source of any kind, one at a time."""

    def __init__(self, layout: layouts.Layout):
        self._source = layout.open()
        super().__init__(layout, self._source.name)
        self.num_classes = self.num_classes or self._source.num_classes
        self.heeds = self._source.heeds
        self.describe = self._source.describe

    def items(self, findings):
        """See `Listing.items`; a source has subtracted labels_offset."""
        return self._items(findings)

    def _items(self, findings):
        count, total = 0, self._source.num_examples
        blocks = self._source.blocks(1, FILE_ORDER)
        if isinstance(self._source, IndexedSource):
            blocks = ({"index": tf.constant([k], tf.int64)} for k in range(total))
        try:
            for count, block in enumerate(blocks, 1):
                item = self._item(block)
                item.share = min(count / total, 1.0) if total else 0.0
                yield item
        except _FAULTS as error:
            place = f"{self.name}, from example {count} on"
            findings.add("damaged_record", place, _first_line(error))

    def _item(self, block: dict) -> Item:
        """Returns the only example of a block."""
        try:
            example = self._source.read(block)
            image = dense(example["image"][0]).numpy()
            return Item(int(example["label"][0]), content=image)
        except _FAULTS as error:
            return Item(fault="damaged_record", detail=_first_line(error))


class PackedImages(Listing):
    """TFRecord or base64 files; damage within one does not hide the next."""

    def __init__(self, layout: layouts.TfrecordLayout | layouts.Base64Layout):
        first, last = layout.files[0], layout.files[-1]
        several = len(layout.files) > 1
        super().__init__(layout, f"{first} ... {last}" if several else first)
        is_text = isinstance(layout, layouts.Base64Layout)
        self._unit = "line" if is_text else "record"
        self._read = _base64_lines if is_text else _tfrecords

    def describe(self, index):
        """See `Listing.describe`."""
        file, number = map(int, self._place(index).split())
        return f"{self._layout.files[file]}, {self._unit} {number}"

    def _items(self, findings):
        sizes = [files.size(file) for file in self._layout.files]
        before, total = 0, max(sum(sizes), 1)
        for place, file in enumerate(self._layout.files):
            try:
                for number, position, item in self._read(file):
                    item.place = b"%d %d" % (place, number)
                    item.share = min((before + position) / total, 1.0)
                    yield item
            except (ValueError, EOFError) as error:
                # The rest of a file whose framing is lost.
                findings.add("damaged_record", file, str(error))
            before += sizes[place]


def _tfrecords(file: str) -> Iterator[tuple[int, int, Item]]:
    """Yields (number, first byte, item) of each record."""
    stream = RandomAccessFile(file)
    for number, (begin, length) in enumerate(tfrecord.places(stream)):
        record = stream.read(begin, length + tfrecord.FOOTER)
        if not tfrecord.is_intact(record):
            item = Item(fault="damaged_record", detail="its checksum is wrong")
        else:
            try:
                image, label = tfrecord.parse_example(record[: -tfrecord.FOOTER])
                item = Item(label, content=image)
            except ValueError as error:
                item = Item(fault="damaged_record", detail=str(error))
        yield number, begin, item


def _base64_lines(file: str) -> Iterator[tuple[int, int, Item]]:
    """Yields (number, end in the file, item) of each line, either column first."""
    try:
        label_first = base64_text.column_order(file)
    except ValueError:
        # The order is then decided line by line.
        label_first = None
    position = 0
    for number, line in paths.read_lines(file, base64_text.LONGEST_LINE):
        position += len(line) + 1
        if line.strip():
            try:
                text, label = base64_text.parse_line(line, label_first)
                item = Item(label, content=base64_text.decode(text))
            except ValueError as error:
                item = Item(fault="bad_line", detail=str(error))
            yield number, position, item


class RecordioImages(Listing):
    """The images of a .rec file."""

    def __init__(self, layout: layouts.RecordioLayout):
        super().__init__(layout, layout.rec)
        self._finder = ImageFinder(layout.rec)

    def describe(self, index):
        """See `Listing.describe`."""
        return f"{self.name}, record {self._place(index).decode()}"

    def _items(self, findings):
        finder, share, images = self._finder, 0.0, 0
        try:
            for image in finder.find():
                # Record 0 holds the number.
                self.num_classes = self.num_classes or finder.num_classes
                if image.error is not None:
                    item = Item(fault=_fault(image), detail=str(image.error))
                else:
                    share = min(image.end / finder.file.size, 1.0)
                    item = Item(image.label, content=finder.content(image))
                images, item.share, item.place = images + 1, share, b"%d" % image.key
                yield item
        except ValueError as error:
            findings.add("damaged_record", self.name, str(error))
        missing = (finder.num_images or 0) - images
        if missing > 0:
            detail = f"record 0 counts {finder.num_images} images, there are {images}"
            findings.add("missing_records", self.name, detail, missing)


def open_listing(name: str, request: DataRequest) -> Listing:
    """Returns the images of a data set.

    Raises:
        FileNotFoundError: there is no data set or list.
        ValueError: an unknown data set, or an impossible request.
    """
    layout = data_load.find_layout(name, request)
    kind = _LISTINGS.get(type(layout), SourceImages)
    # The keys of a user's own parse_fn are not FastNN's.
    listing = (SourceImages if getattr(layout, "parse_fn", None) else kind)(layout)
    if isinstance(listing, ListedImages | PackedImages) and request.split == "train":
        known = data_load.info(data_load.find(name)).num_classes
        listing.num_classes = request.num_classes or known
    return listing


_LISTINGS = {
    layouts.ImageListLayout: ListedImages,
    layouts.ClassFoldersLayout: FolderImages,
    layouts.ArraysLayout: ArrayImages,
    layouts.TfrecordLayout: PackedImages,
    layouts.Base64Layout: PackedImages,
    layouts.RecordioLayout: RecordioImages,
}


def _fault(image) -> str:
    if not image.header:
        return "damaged_record"
    return "empty" if image.is_empty else "label_not_whole"


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0][:300]
