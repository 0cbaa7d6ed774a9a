"""Requests for examples of a data set, and facts about one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """Which examples of a data set are wanted; the same fields for all data sets.

    Args:
        dataset_dir: folder that holds the data set; on any store.
        split: "train", "val" or "test", as far as the data set has them.
        train_files: TFRecord files, absolute or below `dataset_dir`; patterns such
            as "part-*" are allowed. They replace the data set's own files, see
            `DatasetInfo.tfrecords`.
        num_classes: number of classes C, labels are 0...C-1; None takes it from the
            data.
        num_examples: how many images `mock` draws; data sets on disk ignore it.
        image_size: (height, width) in pixels of the images that `mock` draws.
        labels_offset: subtracted from each label that is read (FastNN's flag).
        min_images_per_class: classes with fewer images are left out and the others
            are numbered anew; for data sets made of class folders.
        held_back: share of the training images that are the test split instead, in
            [0, 1); for data sets made of class folders.
        seed: seed of the data itself, for `mock`.
    """

    dataset_dir: str = ""
    split: str = "train"
    train_files: tuple[str, ...] = ()
    num_classes: int | None = None
    num_examples: int | None = None
    image_size: tuple[int, int] = (112, 112)
    labels_offset: int = 0
    min_images_per_class: int = 1
    held_back: float = 0.0
    seed: int = 0

    def __post_init__(self):
        files = self.train_files
        if isinstance(files, str):
            files = [part for part in files.split(",") if part]
        object.__setattr__(self, "train_files", tuple(files))
        object.__setattr__(self, "image_size", check_image_size(self.image_size))
        least = {"num_classes": 1, "num_examples": 1, "min_images_per_class": 1}
        for name, bound in {**least, "seed": 0}.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(
                    f"{name} must be at least {bound}. Received: {name}={value}."
                )


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set; each module in datasets/ has them as `INFO`.

    Args:
        num_classes: number of classes; None when the files decide.
        augmentation: name of the augmentation that suits it ("face", "none"):
            digits and letters must not be mirrored.
        tfrecords: whether the files of `DataRequest.train_files` are TFRecords of this
            data set, which plsc_tf reads; else its `examples` sees to them.
    """

    num_classes: int | None = None
    augmentation: str = "face"
    tfrecords: bool = False


def check_image_size(image_size: Sequence[int]) -> tuple[int, int]:
    """Returns (height, width) as two positive ints, or explains what is wrong."""
    try:
        height, width = (int(value) for value in image_size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise ValueError(
            "image_size must be (height, width), two positive numbers of pixels. "
            f"Received: image_size={image_size!r}."
        )
    return height, width
