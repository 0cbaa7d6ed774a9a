"""All pictures of a data set in order, whatever is wrong with some of them."""

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
    """One picture, or something that should be one.

    Attributes:
        label: an int, or None when it cannot be read.
        path: of its file, when it has one.
        content: its bytes or pixels, when it has no file.
        fault: the kind of what is wrong, when there is neither.
        detail: what exactly.
    """

    label: int | None = None
    path: bytes | None = None
    content: bytes | np.ndarray | None = None
    fault: kinds.Kind | None = None
    detail: str = ""


class Listing:
    """The pictures of a data set.

    Attributes:
        name: of what is read.
        fraction: how much of it was listed so far, 0 ... 1.
        folder: that the paths of a list are relative to; None without files.
        num_classes: that the files tell, or None.
        heeds: as of `plsc_tf.data.source.Source`.
    """

    name: str
    fraction = 0.0
    folder: str | None = None
    num_classes: int | None = None
    heeds: frozenset | None = None

    def items(self, findings: Findings) -> Iterator[Item]:
        """Yields all items; what belongs to no item is added to the findings."""
        raise NotImplementedError

    def describe(self, index: int) -> str:
        """Names an item that was listed."""
        return f"example {index} of {self.name}"

    def path(self, index: int) -> bytes:
        """The path of an item below `folder`."""
        raise NotImplementedError


class Texts:
    """Many short byte strings: 8 bytes each beside their own."""

    def __init__(self):
        self._text = bytearray()
        self._ends = array.array("q", [0])

    def append(self, text: bytes) -> None:
        """Adds one."""
        self._text += text
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._text[self._ends[index] : self._ends[index + 1]])


class ListedImages(Listing):
    """The lines of an image list."""

    def __init__(self, layout: layouts.ImageListLayout):
        self.folder = layout.folder
        self.name = image_list.require_list(layout.folder, layout.list_name)
        self._numbers = array.array("q")
        self._paths = Texts()

    def items(self, findings: Findings) -> Iterator[Item]:
        """See `Listing.items`."""
        size = max(files.size(self.name), 1)
        root, done = os.fsencode(paths.join(self.folder, "")), 0
        try:
            for entry in image_list.entries(self.name):
                item, number, path = self._item(entry, root)
                self._numbers.append(number)
                self._paths.append(path)
                # A line: path, space, label, end; of a bad one its number stands in.
                label = number if item.label is None else item.label
                done += len(path) + len(str(label)) + 2
                self.fraction = min(done / size, 1.0)
                yield item
        except ValueError as error:
            findings.add(kinds.BAD_LINE, self.name, str(error))

    def _item(self, entry, root: bytes) -> tuple[Item, int, bytes]:
        if not isinstance(entry, image_list.BadLine):
            number, path, label = entry
            return Item(label, root + path), number, path
        detail = repr(entry.text.decode(errors="replace"))
        kind = kinds.LABEL_NOT_WHOLE if entry.path else kinds.BAD_LINE
        return Item(fault=kind, detail=detail), entry.number, entry.path or b""

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        path = self._paths[index].decode(errors="replace")
        return f"{self.name}, line {self._numbers[index]} ({path})"

    def path(self, index: int) -> bytes:
        """See `Listing.path`."""
        return self._paths[index]


class FolderImages(Listing):
    """The files in class folders."""

    def __init__(self, layout: layouts.ClassFoldersLayout):
        paths.require_folder(layout.folder)
        self.folder = self.name = layout.folder
        self._layout = layout
        self._paths = Texts()

    def items(self, findings: Findings) -> Iterator[Item]:
        """See `Listing.items`."""
        layout = self._layout
        classes, others, _ = class_folders.scan(layout.folder, layout.keep)
        chosen = layout.images or (lambda path: True)
        for path in others:
            findings.add(kinds.NOT_READ, path)
        for file in classes.pop("", ()):
            findings.add(kinds.LOOSE, file)
        least = layout.request.min_images_per_class
        names = sorted(name for name in classes if len(classes[name]) >= least)
        if not names:
            raise FileNotFoundError(
                f"There are no class folders with {least} pictures in "
                f"{layout.folder!r}. {paths.found(layout.folder)}"
            )
        self.num_classes = len(names)
        root = os.fsencode(paths.join(self.folder, ""))
        done, total = 0, sum(len(classes[name]) for name in names)
        for label, name in enumerate(names):
            for file in classes[name]:
                done += 1
                if not chosen(f"{name}/{file}"):
                    continue
                path = os.fsencode(f"{name}/{file}")
                self._paths.append(path)
                self.fraction = done / total
                yield Item(label, root + path)

    def describe(self, index: int) -> str:
        """See `Listing.describe`."""
        path = self._paths[index].decode(errors="replace")
        return paths.join(self.folder, path)

    def path(self, index: int) -> bytes:
        """See `Listing.path`."""
        return self._paths[index]


class ArrayImages(Listing):
    """Files of pixels that are read as a whole."""

    def __init__(self, layout: layouts.ArraysLayout):
        self.name = layout.name
        self.describe = layout.describe
        self._layout = layout

    def items(self, findings: Findings) -> Iterator[Item]:
        """See `Listing.items`."""
        try:
            images, labels = self._layout.load()
        except ValueError as error:
            findings.add(kinds.DAMAGED_RECORD, self.name, str(error))
            return
        for index, label in enumerate(labels.tolist()):
            self.fraction = (index + 1) / len(labels)
            yield Item(label, content=images[index])


class SourceImages(Listing):
    """The examples of a source of any kind; each fault costs a new start."""

    def __init__(self, source: Source):
        self.name = source.name
        self.describe = source.describe
        self.num_classes = source.num_classes
        self._source = source

    def items(self, findings: Findings) -> Iterator[Item]:
        """See `Listing.items`."""
        if isinstance(self._source, IndexedSource):
            yield from self._indexed()
            return
        start, total = 0, self._source.num_examples
        blocks = self._source.blocks(1, FILE_ORDER)
        try:
            for block in blocks:
                yield _item(self._source.read(block))
                start += 1
                self.fraction = start / total if total else 0.0
        except _FAULTS as error:
            where = f"{self.name}, from example {start} on"
            findings.add(kinds.DAMAGED_RECORD, where, _first_line(error))

    def _indexed(self) -> Iterator[Item]:
        """Reads on after bad examples."""
        start, total = 0, self._source.num_examples
        while start < total:
            with contextlib.suppress(*_FAULTS):
                for record in self._source.records(start):
                    start += 1
                    self.fraction = start / total
                    yield Item(record.label, content=record.image)
                return
            # Examples are read in blocks, of which one alone may be bad.
            item = Item()
            while item.fault is None and start < total:
                item = self._one(start)
                start += 1
                yield item

    def _one(self, index: int) -> Item:
        try:
            return _item(self._source.read({"index": tf.constant([index], tf.int64)}))
        except _FAULTS as error:
            return Item(fault=kinds.DAMAGED_RECORD, detail=_first_line(error))


def _item(block: dict) -> Item:
    """The only example of a block."""
    image = block["image"][0]
    if isinstance(image, tf.RaggedTensor):
        image = image.to_tensor()
    return Item(int(block["label"][0]), content=image.numpy())


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0][:300]
