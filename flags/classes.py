"""Classes of a trained checkpoint, and label noise."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Classes(OptionGroup):
    """What `python -m plsc_tf.classes` edits or reports."""

    edit_dir: str = option(
        "",
        "new folder for the checkpoint with edited classes and labels_map.txt; a "
        "training starts from it (checkpoint_dir) or goes on in it (model_save_dir)",
        saved=False,
    )
    remove_classes: str = option(
        "",
        "labels to remove, as 3,17, or a file with one per line",
        saved=False,
        applies="edit_dir",
    )
    merge_classes: str = option(
        "",
        "classes to make one, as 3+17,5+9+11, or a file with the labels of one such "
        "group per line; a merged class takes the place of its smallest label",
        saved=False,
        applies="edit_dir",
    )
    merge_weights: str = option(
        "pictures",
        "how much a class counts in a merge: its pictures in the training data, or "
        "equal",
        choices=("pictures", "equal"),
        saved=False,
        applies="edit_dir and merge_classes",
    )
    class_rows: str = option(
        "",
        ".npy file of rows [n, emb_size] of new classes, taken as they are",
        saved=False,
        applies="edit_dir",
    )
    class_images: str = option(
        "",
        "folder of one folder per new class: its row is the mean embedding of the "
        "pictures in it, as long as the other rows are",
        saved=False,
        applies="edit_dir",
    )
    add_classes: int = option(
        0,
        "number of new classes that begin as those of a new head do; they come after "
        "those of class_rows and class_images",
        lower=0,
        saved=False,
        applies="edit_dir",
    )
    drop_sub_centers: bool = option(
        False,
        "of a training with sub_centers: keep of each class the center that most of "
        "its training images are nearest to, as its only one; new_list then leaves "
        "out images farther than drop_angle from it (Sub-center ArcFace)",
        saved=False,
    )
    drop_angle: float = option(
        75.0,
        "drop_sub_centers: degrees from the dominant center beyond which new_list "
        "leaves an image out",
        lower=0,
        upper=180,
        saved=False,
        applies="drop_sub_centers",
    )
    edit_weights_only: bool = option(
        False,
        "leave out what only a resume needs (optimizer state)",
        saved=False,
        applies="edit_dir",
    )
    noise_report: str = option(
        "",
        "write what labels look wrong to this file, as JSON (it must end in .json), "
        "and as text beside it",
        saved=False,
    )
    noise_centers: str = option(
        "embeddings",
        "a class's center: the mean embedding of its pictures, or the head's weights, "
        "which the pictures with wrong labels have drawn towards themselves",
        choices=("embeddings", "weights"),
        saved=False,
        applies="noise_report",
    )
    noise_pair: float | None = option(
        None,
        "how much alike two classes must be to be taken for one, 1 meaning as much as "
        "pictures of one class; None: 0.97, of weights a cosine of 0.7",
        lower=0.5,
        saved=False,
        applies="noise_report",
    )
    noise_margin: float = option(
        0.2,
        "how much nearer to another center, as a cosine, a picture must be to be taken "
        "for mislabelled",
        lower=0.0,
        saved=False,
        applies="noise_report",
    )
    noise_split: float = option(
        6.0,
        "how unusual the two groups of a class must be to be taken for two identities, "
        "in deviations",
        lower=0.0,
        saved=False,
        applies="noise_report",
    )
    noise_top: int = option(
        200,
        "findings of each kind that are listed",
        lower=1,
        saved=False,
        applies="noise_report",
    )
    noise_sheets: str = option(
        "",
        "folder for contact sheets (PNG): the pictures of the first findings side by "
        "side",
        saved=False,
        applies="noise_report",
    )
    new_list: str = option(
        "",
        "write a list of the training pictures, one 'path label' per line, to this new "
        "file: with the new labels of an edit, or without those that noise_report "
        "takes for mislabelled; for lists and class folders",
        saved=False,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.noise_report and not self.noise_report.endswith(".json"):
            raise ValueError(
                "noise_report must end in .json. Received: "
                f"noise_report={self.noise_report!r}."
            )
        if self.drop_sub_centers and not self.edit_dir:
            raise ValueError(
                "drop_sub_centers writes a new checkpoint: give edit_dir, a new folder "
                "for it."
            )
        if self.edit_dir and self.noise_report:
            raise ValueError(
                "edit_dir and noise_report are two things: give one of them. Received: "
                f"edit_dir={self.edit_dir!r}, noise_report={self.noise_report!r}."
            )
