"""Which pictures to train on."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option
from plsc_tf.storage import oss


@dataclasses.dataclass(frozen=True)
class Dataset(OptionGroup):
    """The data set: its module, its place and its size."""

    dataset_name: str = option(
        "mock",
        "data set: a module of datasets/ (mock, mnist, cifar10, flowers, ms1m, casia, "
        "folder, image_list, ...) or a dotted path to your own; mock draws its "
        "pictures and needs no files (FastNN dataset_name)",
        applies="no nranks",
    )
    dataset_dir: str = option(
        "./train_data",
        "root folder of the data set; oss:// takes its keys from OSS_ACCESS_KEY_ID and "
        "OSS_ACCESS_KEY_SECRET in the environment (PLSC and FastNN dataset_dir)",
        applies="files and no nranks",
    )
    train_files: tuple[str, ...] = option(
        (),
        "TFRecord files below dataset_dir to train on, separated by commas; empty: "
        "what the data set's module finds (FastNN train_files)",
        applies="no own_source and no nranks",
    )
    num_classes: int = option(
        85742,
        "classes of the training set; labels are 0 ... num_classes - 1 (PLSC "
        "num_classes; FastNN num_classes, 100); the data set's own number unless set, "
        "and the default only where the data set cannot be counted",
        lower=1,
    )
    allow_empty_classes: bool = option(
        False,
        "train although some classes have no image: num_classes above the data set's "
        "own number, labels that begin at 1, empty class folders (which are left out)",
    )
    num_sample_per_epoch: int = option(
        5822653,
        "pictures of an epoch, only used where the data set cannot be counted; mock "
        "draws that many (PLSC train_image_num; FastNN num_sample_per_epoch)",
        lower=1,
        aliases=("train_image_num", "image_num"),
        applies="uncounted",
    )
    labels_offset: int = option(
        0,
        "subtracted from the labels of the files (FastNN labels_offset)",
        applies="examples and label_numbers",
    )
    min_images_per_class: int = option(
        1,
        "classes with fewer pictures than this are left out",
        lower=1,
        applies="examples and class_folders",
    )
    held_back: float = option(
        0.0,
        "share of the training pictures that are the test split instead, chosen by "
        "their paths; for class folders without test/, val/ or validation_preprocess/",
        lower=0,
        upper=1,
        open_ends="upper",
        applies="examples and splits",
    )

    def __post_init__(self):
        super().__post_init__()
        if oss.holds_keys(self.dataset_dir):
            raise ValueError(
                "dataset_dir must not hold keys, as it is logged and saved: put them "
                f"into {oss.ID} and {oss.SECRET} in the environment. Received: "
                f"dataset_dir={oss.masked(self.dataset_dir)}, and keys in it."
            )
