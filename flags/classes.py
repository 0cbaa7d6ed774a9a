"""Classes of a trained checkpoint, and label noise."""

import functools

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option

_edit = functools.partial(option, applies="edit_dir")
_noise = functools.partial(option, applies="noise_report")


class Classes(OptionGroup, saved=False):
    """The edits and reports of `python -m plsc_tf.classes`."""

    edit_dir: str = option("", "new folder for the checkpoint with edited classes")
    remove_classes: str = _edit(
        "", "labels to remove: 3,17, or a file with one per line"
    )
    merge_classes: str = _edit(
        "", "classes to merge, such as 3+17,5+9+11, or a file with a group per line"
    )
    merge_weights: str = option(
        "pictures",
        "weight of a class in a merge: pictures, its number of images, or equal",
        choices=("pictures", "equal"),
        applies="edit_dir and merge_classes",
    )
    class_rows: str = _edit("", ".npy file of rows [n, emb_size] of new classes")
    class_images: str = _edit("", "folder of one folder of images per new class")
    add_classes: int = _edit(0, "new classes with the weights of a new head", lower=0)
    drop_sub_centers: bool = option(
        False, "keep of each class only the center nearest to most of its images"
    )
    drop_angle: float = option(
        75.0,
        "degrees from that center beyond which new_list leaves an image out",
        within="[0, 180]",
        applies="drop_sub_centers",
    )
    edit_weights_only: bool = _edit(False, "leave out the optimizer state")
    noise_report: str = option(
        "",
        "write labels that look wrong to this .json file, and as text next to it",
        check=checks.json_file,
    )
    noise_centers: str = _noise(
        "embeddings",
        "a class's center: the mean embedding of its images, or the head's weights",
        choices=("embeddings", "weights"),
    )
    noise_pair: float | None = _noise(
        None,
        "similarity of two classes that count as one; None: 0.97, weights 0.7",
        lower=0.5,
    )
    noise_margin: float = _noise(
        0.2, "how much nearer (cosine) to another center a wrong label is", lower=0.0
    )
    noise_split: float = _noise(
        6.0, "deviations between two groups that count as two identities", lower=0.0
    )
    noise_top: int = _noise(200, "findings of each kind to list", lower=1)
    noise_sheets: str = _noise("", "folder for contact sheets (PNG) of the findings")
    new_list: str = option("", "list of images to write, with the correct labels")

    REFUSED = {
        "drop_sub_centers and no edit_dir": "drop_sub_centers writes a new checkpoint: "
        "set edit_dir to a new folder for it.",
        "edit_dir and noise_report": "edit_dir and noise_report are two tasks: set one "
        "of them.",
    }
