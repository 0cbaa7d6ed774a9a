"""How the files of a data set lie: what a data set module answers the data doctor.

A source is strict: it raises at the first fault. The doctor goes on after faults, so
it asks by a `LayoutRequest`, gets one of these, and reads the files itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from plsc_tf.data.request import DataRequest


@dataclasses.dataclass(frozen=True)
class LayoutRequest(DataRequest):
    """Asks for the layout of the files instead of a source."""


# See `plsc_tf.data.source.Source.heeds`.
_OF_LABELS = frozenset({"labels_offset"})


@dataclasses.dataclass(frozen=True)
class ImageListLayout:
    """Lines of "path label" in <folder>/<list_name>."""

    heeds = _OF_LABELS
    folder: str
    list_name: str


@dataclasses.dataclass(frozen=True)
class ClassFoldersLayout:
    """Class folders; `keep` and `min_images_per_class` as for `class_folders`."""

    heeds = frozenset({"min_images_per_class"})
    folder: str
    min_images_per_class: int = 1
    keep: Callable[[str], bool] | None = None


@dataclasses.dataclass(frozen=True)
class TfrecordLayout:
    """TFRecord files with FastNN's keys."""

    heeds = _OF_LABELS
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Base64Layout:
    """Part files of "base64 label" or "label base64" lines."""

    heeds = _OF_LABELS
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RecordioLayout:
    """A .rec file, with a .idx beside it or without."""

    heeds = _OF_LABELS
    rec: str


@dataclasses.dataclass(frozen=True)
class ArraysLayout:
    """Files of pixels (idx, CIFAR) that are read as a whole.

    Args:
        name: of the set.
        load: returns (uint8 images [n, h, w, channels], int labels [n]).
        describe: names an image by its index.
    """

    heeds = _OF_LABELS
    name: str
    load: Callable
    describe: Callable[[int], str]


Layout = (
    ImageListLayout
    | ClassFoldersLayout
    | TfrecordLayout
    | Base64Layout
    | RecordioLayout
    | ArraysLayout
)
