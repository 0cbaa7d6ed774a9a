"""Making shards of a data set."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Conversion(OptionGroup, saved=False):
    """The output of `python -m plsc_tf.convert`, and PLSC's names for it."""

    output_dir: str = option(
        "",
        "folder to make, on a local disk; it appears when all is done, and nothing is "
        "overwritten",
    )
    output_format: str = option(
        "tfrecord",
        "tfrecord (FastNN's keys), base64 (PLSC's lines of image, tab, label, with "
        "file_list.txt), or bin, of pairs (insightface, PLSC)",
        choices=("tfrecord", "base64", "bin"),
        aliases=("to",),
    )
    pairs: str = option(
        "",
        "for output_format=bin: LFW's, CALFW's or CPLFW's pairs.txt, or lines of 'left "
        "right 1' (or 0); written as <output_dir>/<its name>.bin",
    )
    pairs_dir: str = option(
        "",
        "folder of the images of pairs; empty: that of the file, or the first one in "
        "it that has them",
        applies="output_dir and no nranks",
    )
    num_shards: int = option(
        8,
        "files of equal numbers of records; take a multiple of the replicas",
        lower=1,
        applies="output_dir and no nranks",
    )
    shuffle: bool = option(
        True,
        "put all records into a random order that follows from the seed; else they "
        "keep theirs",
        applies="output_dir or nranks",
    )
    pad_shards: bool = option(
        False,
        "repeat records drawn at random, fewer than there are shards, so that all "
        "shards have the same number (always so with nranks)",
        applies="output_dir and no nranks",
    )
    split: str = option(
        "train", "part of the data set: train, val or test, if it has them"
    )
    memory_mb: int = option(
        256,
        "megabytes (2^20) to work in; the result is the same with any",
        lower=8,
        applies="output_dir or nranks",
    )
    preview: str = option(
        "",
        "PNG file to draw: the first images after each augmentation and preprocessing; "
        "without output_dir nothing else is done",
    )
    data_dir: str = option(
        "",
        "folder of base64 part files, instead of dataset_dir (PLSC's tool, data_dir)",
    )
    file_list: str = option(
        "",
        "file that names the part files in data_dir, one per line; looked for in "
        "data_dir, then in the working directory (PLSC's tool, file_list)",
    )
    nranks: int = option(
        0,
        "number of base64 files to write, all with the same number of lines; "
        "output_dir is then <data_dir>/shuffled_<nranks> unless set (PLSC's tool, "
        "nranks)",
        lower=0,
    )

    REFUSED = {
        "pairs and no output_format=bin or output_format=bin and no pairs": (
            "pairs are written with output_format=bin, which takes nothing else."
        ),
        "data_dir and no file_list or file_list and no nranks or nranks and no "
        "data_dir": "data_dir, file_list and nranks belong together: the folder of "
        "part files, the file that names them, and the number of files to write.",
    }

    @property
    def is_plsc(self) -> bool:
        """Whether the options of PLSC's tool are used."""
        return bool(self.data_dir or self.file_list or self.nranks)
