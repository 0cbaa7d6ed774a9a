"""Defines the options for the data set: its module, location and size."""

from plsc_tf.flags.option import OptionGroup, Positive, option
from plsc_tf.requirements import require
from plsc_tf.storage import oss


def _without_keys(name, folder):
    rule = f"{name} must not contain keys, because it is logged and saved"
    advice = f"Set {oss.ID} and {oss.SECRET} in the environment"
    shown = oss.masked(folder)
    require(folder == shown, rule, advice, **{name: shown})


class Dataset(OptionGroup):
    """Options for the training data."""

    dataset_name: str = option(
        "mock",
        "module of datasets/ or your own dotted path; mock: synthetic images (FastNN)",
        applies="no nranks",
    )
    dataset_dir: str = option(
        "./train_data",
        "root folder of the data set (PLSC; FastNN)",
        check=_without_keys,
        applies="files and no nranks",
    )
    train_files: tuple[str, ...] = option(
        (),
        "TFRecord files in dataset_dir; empty: those of the data set (FastNN)",
        applies="no own_source and no nranks",
    )
    num_classes: Positive = option(
        85742, "number of classes; if not set, the data set's, if known (PLSC; FastNN)"
    )
    allow_empty_classes: bool = option(False, "train even if classes have no images")
    num_sample_per_epoch: Positive = option(
        5822653,
        "images per epoch, if they cannot be counted (PLSC; FastNN)",
        aliases="train_image_num image_num",
        applies="uncounted",
    )
    labels_offset: int = option(
        0, "number to subtract from labels", applies="examples and label_numbers"
    )
    held_back: float = option(
        0.0,
        "share of the training images that becomes the test split",
        within="[0, 1)",
        applies="examples and splits",
    )
