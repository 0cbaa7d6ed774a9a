"""Checking a data set."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Checking(OptionGroup):
    """What `python -m plsc_tf.check` looks at and writes."""

    report: str = option(
        "",
        "write the findings to this file, as JSON; it must end in .json",
        saved=False,
    )
    cleaned_list: str = option(
        "",
        "write a list of the sound pictures to this new file, one 'path label' per "
        "line: without bad ones, one of equal ones, none with two labels or that are "
        "in a verification set; for lists and class folders",
        saved=False,
    )
    check_split: str = option("train", "split of the data set to check", saved=False)
    near_duplicates: bool = option(
        False,
        "look also for pictures that are only similar to those of the verification "
        "sets (scaled, compressed anew), by a perceptual hash",
        saved=False,
        applies="val_targets",
    )
    check_threads: int = option(
        0, "threads that read and decode; 0: one per core", lower=0, saved=False
    )
