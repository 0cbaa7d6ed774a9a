"""All images of a data set in order, whatever is wrong with some of them."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.readers import class_folders, image_list, layouts
from plsc_tf.data.source import FILE_ORDER, IndexedSource, Source
from plsc_tf.storage import files

# What sources raise when an example cannot be read.
_FAULTS = (tf.errors.OpError, ValueError, OSError, EOFError)


@dataclasses.dataclass(slots=True)
class Item:
    """One image, or something that should be one.

    Attributes:
        label: an int, or None if it cannot be read.
        path: of its file, if it has one.
        content: its bytes or pixels, if it has no file.
        fault: the kind of problem, if there is neither.
        detail: of the fault.
        place: a short text by which the listing finds its description again.
        share: of the whole that is read up to here, 0 ... 1.
    """

    label: int | None = None
    path: bytes | None = None
    content: bytes | np.ndarray | None = None
    fault: kinds.Kind | None = None
    detail: str = ""
    place: bytes = b""
    share: float = 0.0


class Listing:
    """The images of a data set.

    Attributes:
        name: of the list, folder or files.
        folder: that the paths of a list are relative to; None without files.
        num_classes: according to the files, or None.
        heeds: as of `plsc_tf.data.source.Source`.
    """

    name: str
    folder: str | None = None
    num_classes: int | None = None
    heeds: frozenset | None = None

    def __init__(self):
        # Many short texts: 8 bytes each besides their own.
        self._places, self._ends = bytearray(), array.array("q", [0])

    def items(self, findings: Findings) -> Iterator[Item]:
        """Yields all items; what belongs to no item is added to the findings."""
        for item in self._items(findings):
            self._places += item.place
            self._ends.append(len(self._places))
            yield item

    def describe(self, index: int) -> str:
        """Names an item that was listed."""
        return f"example {index} of {self.name}"

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
        super().__init__()
        self.folder = layout.folder
        self.name = image_list.require_list(layout.folder, layout.list_name)

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        number, _, path = self._place(index).decode(errors="replace").partition(" ")
        return f"{self.name}, line {number} ({path})"

    def path(self, index: int) -> bytes:
        """See `Listing.path`."""
        return self._place(index).partition(b" ")[2]

    def _items(self, findings):
        size, done = max(files.size(self.name), 1), 0
        root = os.fsencode(paths.join(self.folder, ""))
        try:
            for entry in image_list.entries(self.name):
                if isinstance(entry, image_list.BadLine):
                    number, path, label = entry.number, entry.path or b"", None
                    detail = repr(entry.text.decode(errors="replace"))
                    fault = kinds.LABEL_NOT_WHOLE if entry.path else kinds.BAD_LINE
                    item = Item(fault=fault, detail=detail)
                else:
                    number, path, label = entry
                    item = Item(label, root + path)
                # A line: path, space, label, end.
                done += len(path) + len(str(label)) + 2
                item.share = min(done / size, 1.0)
                item.place = b"%d %b" % (number, path)
                yield item
        except ValueError as error:
            findings.add(kinds.BAD_LINE, self.name, str(error))


class FolderImages(Listing):
    """The files in class folders."""

    def __init__(self, layout: layouts.ClassFoldersLayout):
        super().__init__()
        paths.require_folder(layout.folder)
        self.folder = self.name = layout.folder
        self._layout = layout

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        return paths.join(self.folder, self._place(index).decode(errors="replace"))

    def _items(self, findings):
        least = self._layout.request.min_images_per_class
        chosen = self._layout.images or (lambda path: True)
        classes, others, _ = class_folders.scan(self.folder, self._layout.keep)
        for path in others:
            findings.add(kinds.NOT_READ, path)
        for file in classes.pop("", ()):
            findings.add(kinds.LOOSE, file)
        names = sorted(name for name in classes if len(classes[name]) >= least)
        if not names:
            raise FileNotFoundError(
                f"There are no class folders with {least} images in "
                f"{self.folder!r}. {paths.names_in(self.folder)}"
            )
        self.num_classes = len(names)
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
        super().__init__()
        self.name = layout.name
        self.describe = layout.describe
        self._load = layout.load

    def _items(self, findings):
        try:
            images, labels = self._load()
        except ValueError as error:
            findings.add(kinds.DAMAGED_RECORD, self.name, str(error))
            return
        for index, label in enumerate(labels.tolist()):
            yield Item(label, content=images[index], share=(index + 1) / len(labels))


class SourceImages(Listing):
    """The examples of a source of any kind; each fault costs a new start."""

    def __init__(self, source: Source):
        super().__init__()
        self.name = source.name
        self.describe = source.describe
        self.num_classes = source.num_classes
        self._source = source

    def _items(self, findings):
        total = self._source.num_examples
        if isinstance(self._source, IndexedSource):
            items = self._indexed(total)
        else:
            items = self._streamed(findings)
        for count, item in enumerate(items, 1):
            item.share = min(count / total, 1.0) if total else 0.0
            yield item

    def _streamed(self, findings):
        count = 0
        try:
            for block in self._source.blocks(1, FILE_ORDER):
                yield _item(self._source.read(block))
                count += 1
        except _FAULTS as error:
            place = f"{self.name}, from example {count} on"
            findings.add(kinds.DAMAGED_RECORD, place, _first_line(error))

    def _indexed(self, total):
        """Continues after bad examples."""
        start = 0
        while start < total:
            with contextlib.suppress(*_FAULTS):
                for record in self._source.records(start):
                    start += 1
                    yield Item(record.label, content=record.image)
                return
            # Examples are read in blocks, of which one alone may be bad.
            item = Item()
            while item.fault is None and start < total:
                index = tf.constant([start], tf.int64)
                try:
                    item = _item(self._source.read({"index": index}))
                except _FAULTS as error:
                    detail = _first_line(error)
                    item = Item(fault=kinds.DAMAGED_RECORD, detail=detail)
                start += 1
                yield item


def _item(block: dict) -> Item:
    """Returns the only example of a block."""
    image = block["image"][0]
    if isinstance(image, tf.RaggedTensor):
        image = image.to_tensor()
    return Item(int(block["label"][0]), content=image.numpy())


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0][:300]
