"""Requests for the examples of a data set, and the layouts that answer them on disk.

`open` is strict and raises an error at the first fault. The checks of
`plsc_tf.data.checks` continue after faults: they use the layout to read the files
themselves.
"""

import dataclasses
import functools
import glob
import hashlib
import os
import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.base64_text import base64_files, listed_files
from plsc_tf.data.readers.formats import BASE64, TFRECORD, Format
from plsc_tf.data.readers.image_files import class_folders, image_list, scan
from plsc_tf.data.readers.recordio import recordio_source
from plsc_tf.data.readers.tfrecord import tfrecords
from plsc_tf.data.source import IndexedSource, Source, on_host
from plsc_tf.requirements import check_image_size, check_least, require
from plsc_tf.storage import files, zips

# Names of folders that contain images for evaluation.
_UNSEEN = ("test", "val", "validation_preprocess")


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """Selects the examples of a data set; all data sets share these fields.

    Conversions store all fields to recognize their input when they are continued.

    Args:
        dataset_dir: folder of the data set, on any store, or a local zip archive.
        split: "train", "val" or "test"; not every data set has all of them.
        train_files: TFRecord files, absolute or relative to `dataset_dir`; patterns
            such as "part-*" are allowed. They replace the data set's own files, see
            `DatasetInfo.tfrecords`.
        num_classes: number of classes C; labels are 0...C-1. None derives it from the
            data.
        num_examples: number of images that `mock` draws; other data sets ignore it.
        image_size: (height, width) in pixels of the images that `mock` draws.
        labels_offset: number to subtract from each label (FastNN's flag).
        held_back: fraction of the training images to use as the test split instead, in
            [0, 1); for data sets in class folders.
        seed: random seed of the images that `mock` draws.
    """

    dataset_dir: str = ""
    split: str = "train"
    train_files: tuple[str, ...] = ()
    num_classes: int | None = None
    num_examples: int | None = None
    image_size: tuple[int, int] = (112, 112)
    labels_offset: int = 0
    held_back: float = 0.0
    seed: int = 0

    def __post_init__(self):
        files = self.train_files
        if isinstance(files, str):
            files = [part for part in files.split(",") if part]
        object.__setattr__(self, "train_files", tuple(files))
        object.__setattr__(self, "dataset_dir", zips.address(self.dataset_dir))
        object.__setattr__(self, "image_size", check_image_size(self.image_size))
        check_least(self, "num_classes", "num_examples")


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set; a module in datasets/ defines them as `INFO`.

    Args:
        num_classes: number of classes; None if it depends on the files.
        augmentation: name of the preprocessing that suits the data set: "face", or
            "none" for digits and letters, which must not be mirrored.
        tfrecords: whether `DataRequest.train_files` are TFRecords that plsc_tf reads;
            if False, the module itself handles them.
    """

    num_classes: int | None = None
    augmentation: str = "face"
    tfrecords: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of a data set.

    A subclass has `open`, or `_read(num_classes, labels_offset)`, which returns the
    source.

    Attributes:
        request: the request for the data set's examples.
        used_fields: see `plsc_tf.data.source.Source.used_fields`.
        form: the `Format` of files that the converter and the checks read themselves;
            None if they read the source, or know the layout.
    """

    request: DataRequest
    used_fields = frozenset({"labels_offset"})
    form = None

    def open(self) -> Source:
        """Opens the files as a source; raises an error at the first fault."""
        request = self.request
        source = self._read(
            num_classes=request.num_classes, labels_offset=request.labels_offset
        )
        source.used_fields = self.used_fields
        return source


@dataclasses.dataclass(frozen=True)
class SourceLayout(Layout):
    """A data set that only its own module can read."""

    read: Callable[[DataRequest], Source]

    def open(self) -> Source:
        """See `Layout.open`."""
        return self.read(self.request)


@dataclasses.dataclass(frozen=True)
class ImageListLayout(Layout):
    """A list <folder>/<list_name> of "path label" lines."""

    folder: str
    list_name: str

    def _read(self, **numbers):
        return image_list(self.folder, self.list_name, **numbers)


@dataclasses.dataclass(frozen=True)
class ClassFoldersLayout(Layout):
    """Class folders.

    Attributes:
        folder: the folder that contains the class folders.
        keep: see `class_folders`.
        images: see `class_folders`.
        numbered_by: another folder that must have the same class folders, or None.
    """

    folder: str
    keep: Callable[[str], bool] | None = None
    images: Callable[[str], bool] | None = None
    numbered_by: str | None = None

    @property
    def used_fields(self):
        """See `Layout`."""
        return frozenset({"held_back"} if self.images else ())

    def _read(self, *, num_classes, labels_offset):
        source = class_folders(
            self.folder, num_classes=num_classes, keep=self.keep, images=self.images
        )
        if self.numbered_by is not None:
            _check_same_classes(source, self.numbered_by, self.folder)
        return source


@dataclasses.dataclass(frozen=True)
class RecordioLayout(Layout):
    """A .rec file, with or without its .idx."""

    rec: str

    def _read(self, **numbers):
        return recordio_source(self.rec, **numbers)


@dataclasses.dataclass(frozen=True)
class FilesLayout(Layout):
    """Files that a function opens.

    Attributes:
        files: paths of the files.
        read: function of `files`, `num_classes` and `labels_offset` that returns the
            source.
        form: see `Layout`.
    """

    files: tuple[str, ...]
    read: Callable
    form: Format | None = None

    def _read(self, **numbers):
        return self.read(self.files, **numbers)


@dataclasses.dataclass(frozen=True)
class ArraysLayout(Layout):
    """Files of pixels (idx, CIFAR) that are loaded into memory as a whole.

    Attributes:
        name: name of the data set.
        num_classes: number of classes if the request does not set it.
        load: function that returns (images, uint8 `[n, h, w, channels]`, integer
            labels `[n]`).
        describe: function that names the image with a given index.
    """

    name: str
    num_classes: int
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
            contents=lambda: hashlib.sha256(pixels.numpy()).hexdigest(),
        )


def images_in_list(request: DataRequest) -> ImageListLayout:
    """Returns the layout of label.txt, or of label_<split>.txt for other splits."""
    return ImageListLayout(request, request.dataset_dir, _list_name(request))


def images_in_folders(request: DataRequest) -> ClassFoldersLayout:
    """Returns the layout of <dataset_dir>/<split>, if it has class folders.

    Training images may also be in <dataset_dir> itself, and test images in val/ or
    validation_preprocess/ (MindSpore).
    """
    folder = paths.require_folder(request.dataset_dir)
    if request.held_back and request.split in ("train", "test"):
        return _without_held_back(request, folder)
    below = _split_folder(folder, request.split)
    if below is None and request.split != "train":
        tried = " or ".join(f"{name}/" for name in _names_of(request.split))
        advice = "Add one, or hold back some of the training images (held_back=0.2)."
        raise paths.no_file(folder, tried, advice)
    train = _split_folder(folder, "train") if request.split == "test" else None
    return ClassFoldersLayout(request, below or folder, numbered_by=train)


def images_in_recordio(request: DataRequest) -> RecordioLayout:
    """Returns the layout of <dataset_dir>/<split>.rec, with its .idx if it exists."""
    folder = paths.require_folder(request.dataset_dir)
    rec = paths.join(folder, f"{request.split}.rec")
    if not files.exists(rec):
        raise paths.no_file(folder, f"{request.split}.rec", "Copy it there.")
    return RecordioLayout(request, rec)


def images_in_base64(request: DataRequest) -> FilesLayout:
    """Returns the layout of base64 files: train_files, or those in file_list.txt."""
    if request.train_files:
        names = paths.expand(request.train_files, request.dataset_dir)
    else:
        names = listed_files(request.dataset_dir)
    return FilesLayout(request, tuple(names), base64_files, BASE64)


def images_in_files(request: DataRequest, read: Callable, *endings: str) -> FilesLayout:
    """Returns the layout of files that a function opens.

    The files are train_files or, with one of the endings, those in dataset_dir that
    have the split in their names; if no name has "train" in it, all are training files.

    Args:
        request: the request.
        read: see `FilesLayout`.
        *endings: endings of the files' names.

    Raises:
        FileNotFoundError: there are no such files.
    """
    found = [name.rstrip("/") for name in paths.listing(request.dataset_dir, most=None)]
    # `Dataset.map` caches its results in files of this name, next to the data.
    found = [name for name in found if not name.startswith("cache-")]
    found = [glob.escape(name) for name in found if name.endswith(endings)]
    is_train = request.split == "train"
    # "latest-train" is not a test split.
    names = [n for n in found if request.split in n and (is_train or "train" not in n)]
    if not (names := request.train_files or names or (is_train and found)):
        kinds = " or ".join(f"{request.split}*{ending}" for ending in endings)
        raise paths.no_file(request.dataset_dir, kinds, "Or set train_files.")
    return FilesLayout(request, tuple(paths.expand(names, request.dataset_dir)), read)


def faces(request: DataRequest) -> ImageListLayout | RecordioLayout:
    """Returns the layout of an image list, or of a .rec file if there is no list."""
    names = _list_name(request), f"{request.split}.rec"
    listed, packed = (files.exists(paths.join(request.dataset_dir, n)) for n in names)
    if packed and not listed:
        return images_in_recordio(request)
    return images_in_list(request)


def records(
    request: DataRequest, name: str, num_classes: int | None = None, parse_fn=None
) -> FilesLayout:
    """Returns the layout of the request's train_files, which are TFRecords.

    Args:
        request: the request; relative train_files are looked up in its dataset_dir.
        name: name of the data set, for messages.
        num_classes: number of classes if the request does not set it.
        parse_fn: parser for records without FastNN's keys, see `tfrecords`.
    """
    names = tuple(paths.expand(request.train_files, request.dataset_dir))
    num_classes = request.num_classes or num_classes
    request = dataclasses.replace(request, num_classes=num_classes)
    read = functools.partial(tfrecords, name=name, parse_fn=parse_fn)
    return FilesLayout(request, names, read, TFRECORD if parse_fn is None else None)


def _list_name(request: DataRequest) -> str:
    return "label.txt" if request.split == "train" else f"label_{request.split}.txt"


def _names_of(split: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((split, *_UNSEEN))) if split in _UNSEEN else (split,)


def _split_folder(folder: str, split: str) -> str | None:
    """Returns the folder that contains a split's class folders, or None."""
    candidates = (paths.join(folder, name) for name in _names_of(split))
    return next((path for path in candidates if files.is_dir(path)), None)


def _without_held_back(request: DataRequest, folder: str) -> ClassFoldersLayout:
    """Returns the training images not held back or, for split "test", the others.

    Whether an image is held back depends only on its path.
    """
    tests = _split_folder(folder, "test")
    rule = f"held_back needs a data set without test images, but {tests!r} exists"
    advice = "Remove the folder or the option"
    require(not tests, rule, advice, held_back=request.held_back)
    bound = request.held_back * 2**32

    def belongs(path: str) -> bool:
        return (zlib.crc32(os.fsencode(path)) < bound) == (request.split == "test")

    train = _split_folder(folder, "train") or folder
    return ClassFoldersLayout(request, train, images=belongs)


def _check_same_classes(source: IndexedSource, train: str, test: str) -> None:
    """Raises ValueError if the two folders would number their classes differently."""
    differing = sorted(set(scan(train)[0]) ^ set(source.class_names))
    rule = f"{test!r} must have the same class folders as {train!r}"
    only = f"{len(differing)} in only one of the two, such as {differing[:1]}"
    require(not differing, rule, differing=only)
