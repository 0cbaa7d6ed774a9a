"""The data set: its module, its place and its size."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option
from plsc_tf.storage import oss


def _without_keys(name, folder):
    if oss.holds_keys(folder):
        raise ValueError(
            f"{name} must not hold keys, as it is logged and saved: put them into "
            f"{oss.ID} and {oss.SECRET} in the environment. Received: "
            f"{name}={oss.masked(folder)}, and keys in it."
        )


@dataclasses.dataclass(frozen=True)
class Dataset(OptionGroup):
    """The training data."""

    dataset_name: str = option(
        "mock",
        "a module of datasets/ (mock, mnist, cifar10, flowers, ms1m, casia, folder, "
        "image_list, ...) or a dotted path to your own; mock draws its images and "
        "needs no files (FastNN dataset_name)",
        applies="no nranks",
    )
    dataset_dir: str = option(
        "./train_data",
        "root folder of the data set; oss:// takes its keys from OSS_ACCESS_KEY_ID and "
        "OSS_ACCESS_KEY_SECRET in the environment (PLSC and FastNN dataset_dir)",
        check=_without_keys,
        applies="files and no nranks",
    )
    train_files: tuple[str, ...] = option(
        (),
        "TFRecord files below dataset_dir to train on; empty: those that the data "
        "set's module lists (FastNN train_files)",
        applies="no own_source and no nranks",
    )
    num_classes: int = option(
        85742,
        "classes; labels are 0 ... num_classes - 1. Unless set, the data set's own "
        "number, and the default only if it cannot be counted (PLSC num_classes; "
        "FastNN num_classes, 100)",
        lower=1,
    )
    allow_empty_classes: bool = option(
        False,
        "train even if some classes have no image: num_classes above the data set's "
        "number, labels that begin at 1, empty class folders (which are left out)",
    )
    num_sample_per_epoch: int = option(
        5822653,
        "images of an epoch, used only if the data set cannot be counted; mock draws "
        "this many (PLSC train_image_num; FastNN num_sample_per_epoch)",
        lower=1,
        aliases=("train_image_num", "image_num"),
        applies="uncounted",
    )
    labels_offset: int = option(
        0,
        "subtracted from the labels in the files (FastNN labels_offset)",
        applies="examples and label_numbers",
    )
    min_images_per_class: int = option(
        1,
        "leave out classes with fewer images than this",
        lower=1,
        applies="examples and class_folders",
    )
    held_back: float = option(
        0.0,
        "share of the training images held out as the test split, chosen by path; for "
        "class folders without test/, val/ or validation_preprocess/",
        within="[0, 1)",
        applies="examples and splits",
    )
