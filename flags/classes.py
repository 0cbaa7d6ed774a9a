"""Defines the options for editing a checkpoint's classes and finding label noise."""

from plsc_tf.flags import checks
from plsc_tf.flags.option import Amount, Count, OptionGroup, option, option_if

_edit = option_if("edit_dir")
_noise = option_if("noise_report")


class Classes(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.classes`."""

    edit_dir: str = option("", "new folder for a checkpoint with edited classes")
    remove_classes: str = _edit(
        "", "labels to remove, such as 3,17, or a file with one per line"
    )
    merge_classes: str = _edit(
        "", "classes to merge, such as 3+17,5+9+11, or a file with one group per line"
    )
    class_images: str = _edit("", "folder with one folder of images for each new class")
    add_classes: Count = _edit(0, "new classes to add, with random weights")
    drop_sub_centers: bool = option(
        False,
        "keep only each class's center that is nearest to most of its images; new_list "
        "leaves out images more than 75 degrees from it",
    )
    edit_weights_only: bool = _edit(False, "leave out the optimizer state")
    noise_report: str = option(
        "", ".json file of labels that look wrong", check=checks.json_file
    )
    noise_pair: float = _noise(
        0.97, "similarity of centers at which classes count as one", lower=0.5
    )
    noise_margin: Amount = _noise(
        0.2, "difference in cosine by which another center must be nearer"
    )
    noise_sheets: str = _noise("", "folder for contact sheets of the findings (PNG)")
    new_list: str = option("", "file for a list of the images with the correct labels")

    REFUSED = {
        "drop_sub_centers and no edit_dir": "drop_sub_centers needs edit_dir.",
        "edit_dir and noise_report": "Set edit_dir or noise_report, not both.",
    }
