"""Classes of a trained checkpoint, and label noise."""

import dataclasses

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Classes(OptionGroup, saved=False):
    """The edits and reports of `python -m plsc_tf.classes`."""

    edit_dir: str = option(
        "",
        "new folder for the checkpoint with edited classes and labels_map.txt; a "
        "training starts from it (checkpoint_dir) or resumes in it (model_save_dir)",
    )
    remove_classes: str = option(
        "",
        "labels to remove, such as 3,17, or a file with one per line",
        applies="edit_dir",
    )
    merge_classes: str = option(
        "",
        "classes to merge, such as 3+17,5+9+11, or a file with the labels of one group "
        "per line; a merged class gets its smallest label",
        applies="edit_dir",
    )
    merge_weights: str = option(
        "pictures",
        "weight of a class in a merge: pictures, its number of images in the training "
        "data, or equal",
        choices=("pictures", "equal"),
        applies="edit_dir and merge_classes",
    )
    class_rows: str = option(
        "",
        ".npy file of rows [n, emb_size] of new classes, taken as they are",
        applies="edit_dir",
    )
    class_images: str = option(
        "",
        "folder of one folder per new class: its row is the mean embedding of the "
        "images in it, scaled to the length of the other rows",
        applies="edit_dir",
    )
    add_classes: int = option(
        0,
        "number of new classes with the initial weights of a new head; they come after "
        "those of class_rows and class_images",
        lower=0,
        applies="edit_dir",
    )
    drop_sub_centers: bool = option(
        False,
        "of a training with sub_centers: keep of each class only the center that most "
        "of its training images are nearest to; new_list then leaves out images "
        "farther than drop_angle from it (Sub-center ArcFace)",
    )
    drop_angle: float = option(
        75.0,
        "drop_sub_centers: degrees from the dominant center beyond which new_list "
        "leaves an image out",
        within="[0, 180]",
        applies="drop_sub_centers",
    )
    edit_weights_only: bool = option(
        False,
        "leave out what only a resume needs (optimizer state)",
        applies="edit_dir",
    )
    noise_report: str = option(
        "",
        "write labels that look wrong to this file, as JSON (it must end in .json), "
        "and as text next to it",
        check=checks.json_file,
    )
    noise_centers: str = option(
        "embeddings",
        "a class's center: the mean embedding of its images, or the head's weights, "
        "which images with wrong labels have drawn towards themselves",
        choices=("embeddings", "weights"),
        applies="noise_report",
    )
    noise_pair: float | None = option(
        None,
        "similarity from which two classes count as one; 1 is as similar as images of "
        "one class; None: 0.97, of weights a cosine of 0.7",
        lower=0.5,
        applies="noise_report",
    )
    noise_margin: float = option(
        0.2,
        "how much nearer to another center, as a cosine, an image must be to count as "
        "mislabeled",
        lower=0.0,
        applies="noise_report",
    )
    noise_split: float = option(
        6.0,
        "deviations from which the two groups of a class count as two identities",
        lower=0.0,
        applies="noise_report",
    )
    noise_top: int = option(
        200, "findings of each kind to list", lower=1, applies="noise_report"
    )
    noise_sheets: str = option(
        "",
        "folder for contact sheets (PNG) of the images of the first findings",
        applies="noise_report",
    )
    new_list: str = option(
        "",
        "write a list of the training images, one 'path label' per line, to this new "
        "file: with the new labels of an edit, or without those that noise_report "
        "counts as mislabeled; for lists and class folders",
    )

    REFUSED = {
        "drop_sub_centers and no edit_dir": "drop_sub_centers writes a new checkpoint: "
        "set edit_dir to a new folder for it.",
        "edit_dir and noise_report": "edit_dir and noise_report are two tasks: set one "
        "of them.",
    }
