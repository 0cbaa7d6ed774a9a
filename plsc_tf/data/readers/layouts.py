"""How the files of a data set lie on disk: found by a `DataRequest`, read by `open`.

`open` is strict and raises at the first fault. The data doctor continues after faults:
it takes the layout and reads the files itself.
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.base64_text import base64_files, listed_files
from plsc_tf.data.readers.class_folders import class_folders
from plsc_tf.data.readers.image_list import image_list
from plsc_tf.data.readers.recordio import recordio_source
from plsc_tf.data.readers.tfrecord import tfrecords
from plsc_tf.data.request import DataRequest
from plsc_tf.data.source import IndexedSource, Source, on_host
from plsc_tf.storage import files

# Names of folders with images that are not trained on.
_UNSEEN = ("test", "val", "validation_preprocess")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Files of a data set.

    Attributes:
        request: for examples of the data set.
        heeds: see `plsc_tf.data.source.Source.heeds`.
    """

    request: DataRequest
    heeds = frozenset({"labels_offset"})

    def open(self) -> Source:
        """Reads the files; raises at the first fault."""
        request = self.request
        source = self._read(
            num_classes=request.num_classes, labels_offset=request.labels_offset
        )
        source.heeds = self.heeds
        return source

    def _read(self, **numbers) -> Source:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class SourceLayout(Layout):
    """A source that only its own data set can read."""

    read: Callable[[DataRequest], Source]

    def open(self) -> Source:
        """See `Layout.open`."""
        return self.read(self.request)


@dataclasses.dataclass(frozen=True)
class ImageListLayout(Layout):
    """Lines of "path label" in <folder>/<list_name>."""

    folder: str
    list_name: str

    def _read(self, **numbers):
        return image_list(self.folder, self.list_name, **numbers)


@dataclasses.dataclass(frozen=True)
class ClassFoldersLayout(Layout):
    """Class folders.

    Attributes:
        folder: that holds them.
        keep: see `class_folders`.
        images: see `class_folders`.
        numbered_by: a folder that must have the same class folders, or None.
    """

    folder: str
    keep: Callable[[str], bool] | None = None
    images: Callable[[str], bool] | None = None
    numbered_by: str | None = None

    @property
    def heeds(self):
        """See `Layout`."""
        held_back = ("held_back",) if self.images else ()
        return frozenset({"min_images_per_class", *held_back})

    def _read(self, *, num_classes, labels_offset):
        source = class_folders(
            self.folder,
            num_classes=num_classes,
            min_images_per_class=self.request.min_images_per_class,
            keep=self.keep,
            images=self.images,
        )
        if self.numbered_by is not None:
            _check_same_classes(source, self.numbered_by, self.folder)
        return source


@dataclasses.dataclass(frozen=True)
class TfrecordLayout(Layout):
    """TFRecord files.

    Attributes:
        files: their paths.
        name: of the data set.
        parse_fn: see `tfrecords`; None: they have FastNN's keys.
    """

    files: tuple[str, ...]
    name: str
    parse_fn: Callable | None = None

    def _read(self, **numbers):
        return tfrecords(self.files, name=self.name, parse_fn=self.parse_fn, **numbers)


@dataclasses.dataclass(frozen=True)
class Base64Layout(Layout):
    """Part files of "base64 label" or "label base64" lines."""

    files: tuple[str, ...]

    def _read(self, **numbers):
        return base64_files(self.files, **numbers)


@dataclasses.dataclass(frozen=True)
class RecordioLayout(Layout):
    """A .rec file, with or without its .idx."""

    rec: str

    def _read(self, **numbers):
        return recordio_source(self.rec, **numbers)


@dataclasses.dataclass(frozen=True)
class ArraysLayout(Layout):
    """Files of pixels (idx, CIFAR) that are read as a whole.

    Attributes:
        name: of the data set.
        num_classes: if the request names no number.
        files: that are read; copies elsewhere count as other data.
        load: returns (uint8 images [n, h, w, channels], integer labels [n]).
        describe: names an image by its index.
    """

    name: str
    num_classes: int
    files: str
    load: Callable
    describe: Callable[[int], str]

    def _read(self, *, num_classes, labels_offset):
        images, labels = self.load()
        pixels = on_host(images)
        return IndexedSource(
            self.name,
            labels.astype(np.int64) - labels_offset,
            lambda index: tf.gather(pixels, index),
            num_classes=num_classes or self.num_classes,
            describe=self.describe,
            stamp=lambda: self.files,
        )


def images_in_list(request: DataRequest) -> ImageListLayout:
    """label.txt, or label_<split>.txt for a split other than train."""
    return ImageListLayout(request, request.dataset_dir, _list_name(request))


def images_in_folders(request: DataRequest) -> ClassFoldersLayout:
    """<dataset_dir>/<split>, or <dataset_dir> itself for the train split.

    The test images may also be in val/ or validation_preprocess/ (MindSpore).
    """
    folder = paths.require_folder(request.dataset_dir)
    if request.held_back and request.split in ("train", "test"):
        return _without_held_back(request, folder)
    below = _split_folder(folder, request.split)
    if below is None and request.split != "train":
        tried = ", ".join(f"{name}/" for name in _names_of(request.split))
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {tried}. {paths.names_in(folder)} Add "
            "it, or hold some of the training images back (held_back=0.2)."
        )
    train = _split_folder(folder, "train") if request.split == "test" else None
    return ClassFoldersLayout(request, below or folder, numbered_by=train)


def images_in_recordio(request: DataRequest) -> RecordioLayout:
    """<dataset_dir>/<split>.rec, in the order of <split>.idx if there is one."""
    folder = paths.require_folder(request.dataset_dir)
    rec = paths.join(folder, f"{request.split}.rec")
    if not files.exists(rec):
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {request.split}.rec. "
            f"{paths.names_in(folder)}"
        )
    return RecordioLayout(request, rec)


def images_in_base64(request: DataRequest) -> Base64Layout:
    """Base64 part files: train_files, or those of <dataset_dir>/file_list.txt."""
    if request.train_files:
        names = paths.expand(request.train_files, request.dataset_dir)
    else:
        names = listed_files(request.dataset_dir)
    return Base64Layout(request, tuple(names))


def faces(request: DataRequest) -> ImageListLayout | RecordioLayout:
    """label.txt, or else train.rec."""
    names = _list_name(request), f"{request.split}.rec"
    listed, packed = (files.exists(paths.join(request.dataset_dir, n)) for n in names)
    if packed and not listed:
        return images_in_recordio(request)
    return images_in_list(request)


def records(
    request: DataRequest, name: str, num_classes: int | None = None, parse_fn=None
) -> TfrecordLayout:
    """The TFRecord files that `train_files` names, below dataset_dir or not.

    Args:
        request: for them.
        name: of the data set, for messages.
        num_classes: if the request has no number.
        parse_fn: of records with other keys than FastNN's, see `tfrecords`.
    """
    names = tuple(paths.expand(request.train_files, request.dataset_dir))
    num_classes = request.num_classes or num_classes
    request = dataclasses.replace(request, num_classes=num_classes)
    return TfrecordLayout(request, names, name, parse_fn)


def _list_name(request: DataRequest) -> str:
    return "label.txt" if request.split == "train" else f"label_{request.split}.txt"


def _names_of(split: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((split, *_UNSEEN))) if split in _UNSEEN else (split,)


def _split_folder(folder: str, split: str) -> str | None:
    """Returns the folder of a split's class folders, or None."""
    candidates = (paths.join(folder, name) for name in _names_of(split))
    return next((path for path in candidates if files.is_dir(path)), None)


def _without_held_back(request: DataRequest, folder: str) -> ClassFoldersLayout:
    """The training images without the held-back ones, or these, as the split says.

    Whether an image is held back depends on its path only.
    """
    tests = _split_folder(folder, "test")
    if tests:
        raise ValueError(
            "held_back takes test images from the training images, but there are some "
            f"in {tests!r}. Received: held_back={request.held_back}"
        )
    bound = request.held_back * 2**32

    def belongs(path: str) -> bool:
        held_back = zlib.crc32(os.fsencode(path)) < bound
        return held_back == (request.split == "test")

    train = _split_folder(folder, "train") or folder
    return ClassFoldersLayout(request, train, images=belongs)


def _check_same_classes(source: IndexedSource, train: str, test: str) -> None:
    """Raises ValueError if the folders' classes would be numbered differently."""
    names = {n[:-1] for n in paths.listing(train, most=None) if n.endswith("/")}
    tested = {name.partition("/")[0] for name in source.class_names}
    differing = sorted({n for n in names if not n.startswith(".")} ^ tested)
    if differing:
        raise ValueError(
            f"{test!r} must have the class folders of {train!r}. Received: "
            f"{len(differing)} differences, such as {differing[0]!r}."
        )
