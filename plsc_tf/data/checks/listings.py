"""Lists all images of a data set in order, continuing after faulty ones."""

import array
import dataclasses
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data import load as data_load, paths, sampling
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.faults import reason
from plsc_tf.data.readers import image_files, layouts, packed, recordio
from plsc_tf.data.source import dense
from plsc_tf.storage import files

# Errors that sources raise if an example cannot be read.
_FAULTS = (tf.errors.OpError, ValueError, OSError, EOFError)


@dataclasses.dataclass(slots=True)
class Item:
    """An image, or an entry that should be an image, and the result of examining it.

    Attributes:
        label: the label as in training; None if it cannot be read.
        path: path of the image's file, if it has its own file.
        content: the image's bytes or pixels, if it does not have its own file.
        faults: list of (kind, detail); there is one if neither `path` nor `content` is
            given.
        place: short text from which `Listing.describe` describes the item.
        units: its part of `Listing.total`.
        byte_hash: 64-bit hash of the encoded image; for an array, of its pixels.
        pixel_hash: 64-bit hash of the decoded pixels; 0 if they cannot be decoded.
        near_hash: 64-bit difference hash; 0 if it was not requested.
    """

    label: int | None = None
    path: bytes | None = None
    content: bytes | np.ndarray | None = None
    faults: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    place: bytes = b""
    units: int = 1
    byte_hash: int = 0
    pixel_hash: int = 0
    near_hash: int = 0

    def add(self, kind: str, detail: str = "") -> None:
        """Adds a fault."""
        self.faults.append((kind, detail))


class Listing:
    """The images of a data set, which a subclass yields in `_items(findings)`.

    Args:
        layout: layout of the data set's files.
        name: name of the list, the folder or the files.
        folder: folder to which the images' paths are relative; None if images are not
            separate files.

    Attributes:
        num_classes: number of classes; None if unknown. For some layouts it becomes
            known only while the files are read.
        used_fields: see `plsc_tf.data.source.Source`.
        total: sum of the items' units; None if unknown, or before the first item.
        unit: the units, "images" or "bytes".
        fault: the kind of finding if the rest of the files cannot be read.
    """

    total: int | None = None
    unit = "images"
    fault = "damaged_record"

    def __init__(self, layout: layouts.Layout, name: str, folder: str | None = None):
        self.name, self.folder = name, folder
        self.num_classes = layout.request.num_classes
        self.used_fields = layout.used_fields
        self._layout, self._offset = layout, 0
        if "labels_offset" in (layout.used_fields or ()):
            self._offset = layout.request.labels_offset
        # Stores many short texts with an overhead of 8 bytes each.
        self._places, self._ends = bytearray(), array.array("q", [0])

    def items(self, findings: Findings) -> Iterator[Item]:
        """Yields all items; adds faults that do not belong to an item to `findings`."""
        try:
            for item in self._items(findings):
                if item.label is not None:
                    item.label -= self._offset
                self._places += item.place
                self._ends.append(len(self._places))
                yield item
        except ValueError as error:
            findings.add(self.fault, self.name, str(error))

    def describe(self, index: int) -> str:
        """Describes an item that `items` has already yielded."""
        return f"{self.name}, {self._place(index).decode(errors='replace')}"

    def path(self, index: int) -> bytes:
        """Returns the path of an item, relative to `folder`."""
        return self._place(index)

    def _place(self, index):
        return bytes(self._places[self._ends[index] : self._ends[index + 1]])


class ListedImages(Listing):
    """Lists the lines of an image list."""

    fault = "bad_line"

    def __init__(self, layout: layouts.ImageListLayout):
        name = image_files.require_list(layout.folder, layout.list_name)
        super().__init__(layout, name, layout.folder)

    def path(self, index):
        """See `Listing.path`."""
        return self._place(index).partition(b" (")[2][:-1]

    def _items(self, findings):
        self.total = sum(chunk.count(b"\n") for chunk in files.open_read(self.name))
        root = os.fsencode(paths.join(self.folder, ""))
        for number, path, label, text in image_files.lines(self.name):
            path = path or b""
            item = Item(label, paths.normalized(root + path))
            if label is None:
                fault = "label_not_whole" if path else "bad_line"
                item = Item(faults=[(fault, repr(text.decode(errors="replace")))])
            item.place = b"line %d (%b)" % (number, path)
            yield item


class FolderImages(Listing):
    """Lists the files in class folders."""

    fault = "unreadable"

    def __init__(self, layout: layouts.ClassFoldersLayout):
        paths.require_folder(layout.folder)
        super().__init__(layout, layout.folder, layout.folder)

    def describe(self, index):
        """See `Listing.describe`."""
        return paths.join(self.name, self._place(index).decode(errors="replace"))

    def _items(self, findings):
        chosen = self._layout.images or (lambda path: True)
        classes, loose, others, _ = image_files.scan(self.folder, self._layout.keep)
        for path in others:
            findings.add("file_not_read", path)
        for file in loose:
            findings.add("outside_classes", file)
        self.num_classes = self.num_classes or len(classes)
        root = os.fsencode(paths.join(self.folder, ""))
        self.total = sum(map(len, classes.values()))
        for label, (name, names) in enumerate(classes.items()):
            for file in names:
                if chosen(f"{name}/{file}"):
                    path = os.fsencode(f"{name}/{file}")
                    yield Item(label, root + path, place=path)


class ArrayImages(Listing):
    """Lists the images in files of pixels, which are loaded as a whole."""

    def __init__(self, layout: layouts.ArraysLayout):
        super().__init__(layout, layout.name)
        self.num_classes = self.num_classes or layout.num_classes
        self.describe = layout.describe

    def _items(self, findings):
        images, labels = self._layout.load()
        self.total = len(labels)
        for index, label in enumerate(labels.tolist()):
            yield Item(label, content=images[index])


class SourceImages(Listing):
    """Lists the examples of any source, one at a time."""

    def __init__(self, layout: layouts.Layout):
        self._source = layout.open()
        super().__init__(layout, self._source.name)
        self.num_classes = self.num_classes or self._source.num_classes
        self.used_fields = self._source.used_fields
        self.describe = self._source.describe
        self._offset = 0  # The source itself subtracts labels_offset.

    def _items(self, findings):
        self.total = self._source.num_examples
        try:
            for block in self._source.blocks(1, sampling.FILE_ORDER):
                try:
                    example = self._source.read(block)
                    image = dense(example["image"][0]).numpy()
                    item = Item(int(example["label"][0]), content=image)
                except _FAULTS as error:
                    item = Item(faults=[("damaged_record", reason(error)[:300])])
                yield item
        except _FAULTS as error:
            place = f"{self.name}, from example {len(self._ends) - 1} on"
            findings.add("damaged_record", place, reason(error)[:300])


class PackedImages(Listing):
    """Lists the images in TFRecord or base64 files; continues after a damaged file."""

    unit = "bytes"

    def __init__(self, layout: layouts.FilesLayout):
        ends = dict.fromkeys((layout.files[0], layout.files[-1]))
        super().__init__(layout, " ... ".join(ends))

    def describe(self, index):
        """See `Listing.describe`."""
        file, number = map(int, self._place(index).split())
        return f"{self._layout.files[file]}, {self._layout.form.unit} {number}"

    def _items(self, findings):
        self.total, form = sum(map(files.size, self._layout.files)), self._layout.form
        fault = "bad_line" if form.unit == "line" else "damaged_record"
        for place, file in enumerate(self._layout.files):
            begin, labels = 0, []
            try:
                for number, end, record in form.read(file):
                    try:
                        image, label = form.unpack(record)
                        item = Item(label, content=image)
                    except ValueError as error:
                        item = Item(faults=[(fault, str(error))])
                    labels.append(item.label)
                    item.place = b"%d %d" % (place, number)
                    item.units, begin = end - begin, end
                    yield item
            except ValueError as error:
                # The rest of the file cannot be read without the record boundaries.
                findings.add("damaged_record", file, str(error))
            if packed.has_wrong_index(file, *form.find, labels):
                findings.add("wrong_index", file)


class RecordioImages(Listing):
    """Lists the images in a .rec file."""

    def __init__(self, layout: layouts.RecordioLayout):
        super().__init__(layout, layout.rec)
        self._finder = recordio.ImageFinder(layout.rec)

    def _items(self, findings):
        finder = self._finder
        for image in finder.find():
            # These numbers become known when record 0 is read.
            self.num_classes = self.num_classes or finder.num_classes
            self.total = finder.num_images
            if image.error is not None:
                fault = "empty" if image.is_empty else "label_not_whole"
                fault = fault if image.end else "damaged_record"
                item = Item(faults=[(fault, str(image.error))])
            else:
                item = Item(int(image.labels[0]), content=finder.content(image))
            item.place = b"record %d" % image.key
            yield item


def open_listing(name: str, request: layouts.DataRequest) -> Listing:
    """Returns the listing of a data set.

    Raises:
        FileNotFoundError: the data set or its list does not exist.
        ValueError: the data set is unknown, or the request is invalid.
    """
    layout = data_load.find_layout(name, request)
    kind = PackedImages if layout.form else SourceImages
    listing = _LISTINGS.get(type(layout), kind)(layout)
    if isinstance(listing, ListedImages | PackedImages) and request.split == "train":
        listing.num_classes = request.num_classes or data_load.info(name).num_classes
    return listing


_LISTINGS = {
    layouts.ImageListLayout: ListedImages,
    layouts.ClassFoldersLayout: FolderImages,
    layouts.ArraysLayout: ArrayImages,
    layouts.RecordioLayout: RecordioImages,
}
