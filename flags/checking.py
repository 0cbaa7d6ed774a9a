"""Checking a data set."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Checking(OptionGroup, saved=False):
    """The input and output of `python -m plsc_tf.check`."""

    report: str = option(
        "", "write the findings to this file, as JSON; it must end in .json"
    )
    cleaned_list: str = option(
        "",
        "write a list of the good images to this new file, one 'path label' per line: "
        "no damaged ones, one of equal ones, none with two labels or in a verification "
        "set; for lists and class folders",
    )
    check_split: str = option("train", "split of the data set to check")
    near_duplicates: bool = option(
        False,
        "also look for images that are only similar to those of the verification sets "
        "(scaled, compressed again), by a perceptual hash",
        applies="val_targets",
    )
    check_threads: int = option(
        0, "threads that read and decode; 0: one per core", lower=0
    )
