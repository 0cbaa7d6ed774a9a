"""Requests for a data set's examples, and facts about a data set."""

import dataclasses
from collections.abc import Sequence

from plsc_tf.requirements import require


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """Selects the examples of a data set; all data sets share these fields.

    Conversions store all fields to recognize their input when they are continued.

    Args:
        dataset_dir: folder of the data set, on any store.
        split: "train", "val" or "test"; not every data set has all of them.
        train_files: TFRecord files, absolute or relative to `dataset_dir`; patterns
            such as "part-*" are allowed. They replace the data set's own files, see
            `DatasetInfo.tfrecords`.
        num_classes: number of classes C; labels are 0...C-1. None derives it from the
            data.
        num_examples: number of images that `mock` draws; other data sets ignore it.
        image_size: (height, width) in pixels of the images that `mock` draws.
        labels_offset: number to subtract from each label (FastNN's flag).
        min_images_per_class: leave out classes with fewer images and renumber the
            others; for data sets in class folders.
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
    min_images_per_class: int = 1
    held_back: float = 0.0
    seed: int = 0

    def __post_init__(self):
        files = self.train_files
        if isinstance(files, str):
            files = [part for part in files.split(",") if part]
        object.__setattr__(self, "train_files", tuple(files))
        object.__setattr__(self, "image_size", check_image_size(self.image_size))
        check_least(self, "num_classes", "num_examples", "min_images_per_class")


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set; a module in datasets/ defines them as `INFO`.

    Args:
        num_classes: number of classes; None if it depends on the files.
        augmentation: name of the augmentation that suits the data set: "face", or
            "none" for digits and letters, which must not be mirrored.
        tfrecords: whether `DataRequest.train_files` are TFRecords that plsc_tf reads;
            if False, the module itself handles them.
    """

    num_classes: int | None = None
    augmentation: str = "face"
    tfrecords: bool = False


def check_least(options, *names: str) -> None:
    """Raises ValueError if a named option is below 1, or `seed` is negative.

    Args:
        options: an object with these attributes and `seed`; None passes.
        names: names of the attributes.
    """
    for name in (*names, "seed"):
        value, least = getattr(options, name), int(name != "seed")
        good = value is None or value >= least
        require(good, f"{name} must be at least {least}", **{name: value})


def check_image_size(image_size: Sequence[int]) -> tuple[int, int]:
    """Returns (height, width) as ints; raises ValueError unless both are positive."""
    try:
        height, width = (int(value) for value in image_size)
    except (TypeError, ValueError):
        height = width = 0
    rule = "image_size must be (height, width), two positive numbers of pixels"
    require(height >= 1 and width >= 1, rule, image_size=repr(image_size))
    return height, width
