"""The layouts as data set modules ask for them: by a `DataRequest`.

A `LayoutRequest` gets the layout instead of a source, so that a data set made of these
functions can be checked by the data doctor, whatever is wrong with its files.
"""

from __future__ import annotations

import os
import zlib

from plsc_tf.data import paths
from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.base64_text import base64_files, listed_files
from plsc_tf.data.readers.class_folders import class_folders
from plsc_tf.data.readers.image_list import image_list
from plsc_tf.data.readers.layouts import LayoutRequest
from plsc_tf.data.readers.recordio import recordio_source
from plsc_tf.data.readers.tfrecord import tfrecords
from plsc_tf.data.request import DataRequest
from plsc_tf.data.source import Source
from plsc_tf.storage import files

# What folders of images that were not trained on are called.
_UNSEEN = ("test", "val", "validation_preprocess")


def requested_records(
    request: DataRequest, name: str, *, num_classes=None, parse_fn=None
) -> Source:
    """Reads the TFRecord files that `train_files` names, below dataset_dir or not.

    Args:
        request: what was asked.
        name: of the data set, for messages.
        num_classes: where the request does not say.
        parse_fn: of records with other keys than FastNN's, see `tfrecords`.
    """
    files = paths.expand(request.train_files, request.dataset_dir)
    if isinstance(request, LayoutRequest) and parse_fn is None:
        return layouts.TfrecordLayout(tuple(files))
    source = tfrecords(
        files,
        name=name,
        num_classes=request.num_classes or num_classes,
        labels_offset=request.labels_offset,
        parse_fn=parse_fn,
    )
    return _heeding(source, "labels_offset")


def requested_list(request: DataRequest) -> Source:
    """Reads label.txt, or label_<split>.txt for another split than train."""
    name = list_name(request)
    if isinstance(request, LayoutRequest):
        return layouts.ImageListLayout(request.dataset_dir, name)
    source = image_list(
        request.dataset_dir,
        name,
        num_classes=request.num_classes,
        labels_offset=request.labels_offset,
    )
    return _heeding(source, "labels_offset")


def requested_folders(request: DataRequest) -> Source:
    """Reads <dataset_dir>/<split>, or <dataset_dir> itself for the train split.

    The test images may also be in val/ or validation_preprocess/ (MindSpore).
    """
    folder = paths.require_folder(request.dataset_dir)
    if request.held_back and request.split in ("train", "test"):
        source = _with_held_back(request, folder)
        return _heeding(source, "min_images_per_class", "held_back")
    below = _split_folder(folder, request.split)
    if below is None and request.split != "train":
        tried = ", ".join(f"{name}/" for name in _names_of(request.split))
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {tried}. {paths.found(folder)} Put the "
            f"images of this split into {paths.join(folder, request.split)!r}, or have "
            "some of the training images held back (held_back=0.2)."
        )
    source = requested_classes(request, below or folder)
    if request.split == "test" and not isinstance(request, LayoutRequest):
        _check_same_classes(source, _split_folder(folder, "train"), below)
    return source


def _check_same_classes(source, train: str | None, test: str) -> None:
    """Raises ValueError where the folders' classes would be numbered differently."""
    if train is None:
        return
    folders = {n[:-1] for n in paths.listing(train, most=None) if n.endswith("/")}
    tested = {name.partition("/")[0] for name in source.class_names}
    differing = sorted({n for n in folders if not n.startswith(".")} ^ tested)
    if differing:
        raise ValueError(
            f"{test!r} must have the class folders of {train!r}, by which classes are "
            f"numbered. Received: {differing[0]!r} in only one of them, "
            f"{len(differing)} differences in all."
        )


def _names_of(split: str) -> tuple[str, ...]:
    return (split, *(name for name in _UNSEEN if name != split and split in _UNSEEN))


def _split_folder(folder: str, split: str) -> str | None:
    """Returns the folder of a split's class folders, None where there is none."""
    candidates = (paths.join(folder, name) for name in _names_of(split))
    return next((path for path in candidates if files.is_dir(path)), None)


def _with_held_back(request: DataRequest, folder: str) -> Source:
    """The training images without those held back, or these, as the split says.

    Which ones these are depends on the images' paths only, whatever else is there.
    """
    tests = _split_folder(folder, "test")
    if tests:
        raise ValueError(
            "held_back takes test images from the training images, but there are some "
            f"in {tests!r}. Received: held_back={request.held_back}"
        )
    below = paths.join(folder, "train")
    if files.is_dir(below):
        folder = below
    bound = request.held_back * 2**32

    def belongs(path: str) -> bool:
        held_back = zlib.crc32(os.fsencode(path)) < bound
        return held_back == (request.split == "test")

    return requested_classes(request, folder, images=belongs)


def requested_classes(
    request: DataRequest, folder: str, keep=None, images=None
) -> Source:
    """Reads the class folders in `folder`: the classes and images that are accepted."""
    least = request.min_images_per_class
    if isinstance(request, LayoutRequest):
        return layouts.ClassFoldersLayout(folder, least, keep)
    source = class_folders(
        folder,
        num_classes=request.num_classes,
        min_images_per_class=least,
        keep=keep,
        images=images,
    )
    return _heeding(source, "min_images_per_class")


def requested_recordio(request: DataRequest) -> Source:
    """Reads <dataset_dir>/<split>.rec, in the order of <split>.idx if it is there."""
    folder = paths.require_folder(request.dataset_dir)
    rec = paths.join(folder, f"{request.split}.rec")
    if not files.exists(rec):
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {request.split}.rec. {paths.found(folder)}"
        )
    if isinstance(request, LayoutRequest):
        return layouts.RecordioLayout(rec)
    source = recordio_source(
        rec, num_classes=request.num_classes, labels_offset=request.labels_offset
    )
    return _heeding(source, "labels_offset")


def requested_base64(request: DataRequest) -> Source:
    """Reads base64 part files: train_files, or those of <dataset_dir>/file_list.txt."""
    if request.train_files:
        files = paths.expand(request.train_files, request.dataset_dir)
    else:
        files = listed_files(request.dataset_dir)
    if isinstance(request, LayoutRequest):
        return layouts.Base64Layout(tuple(files))
    source = base64_files(
        files, num_classes=request.num_classes, labels_offset=request.labels_offset
    )
    return _heeding(source, "labels_offset")


def requested_faces(request: DataRequest) -> Source:
    """Reads what a set of faces comes as: label.txt, else train.rec."""
    folder = request.dataset_dir
    rec = paths.join(folder, f"{request.split}.rec")
    listed = files.exists(paths.join(folder, list_name(request)))
    if not listed and files.exists(rec):
        return requested_recordio(request)
    return requested_list(request)


def list_name(request: DataRequest) -> str:
    """The name of the image list of a split."""
    return "label.txt" if request.split == "train" else f"label_{request.split}.txt"


def _heeding(source, *names):
    """A source, or a layout, with the fields of the request that it depends on."""
    if isinstance(source, Source):
        source.heeds = frozenset(names)
    return source
