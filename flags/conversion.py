"""Making shards of a data set."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Conversion(OptionGroup):
    """What `python -m plsc_tf.convert` writes, and PLSC's names for it."""

    output_dir: str = option(
        "",
        "folder to make, on a local disk; it appears when all is done, and nothing is "
        "overwritten",
        saved=False,
    )
    output_format: str = option(
        "tfrecord",
        "tfrecord (FastNN's keys), base64 (PLSC's lines of image, tab, label, with "
        "file_list.txt), or bin, of pairs (insightface, PLSC)",
        choices=("tfrecord", "base64", "bin"),
        saved=False,
        aliases=("to",),
    )
    pairs: str = option(
        "",
        "for output_format=bin: LFW's, CALFW's or CPLFW's pairs.txt, or lines of 'left "
        "right 1' (or 0); written as <output_dir>/<its name>.bin",
        saved=False,
    )
    pairs_dir: str = option(
        "",
        "folder that the pictures of pairs are below; empty: that of the file, or the "
        "first one in it that has them",
        saved=False,
        applies="output_dir and no nranks",
    )
    num_shards: int = option(
        8,
        "files of equal numbers of records; take a multiple of the replicas",
        lower=1,
        saved=False,
        applies="output_dir and no nranks",
    )
    shuffle: bool = option(
        True,
        "put all records into a random order, which follows from the seed; else they "
        "keep theirs",
        saved=False,
        applies="output_dir or nranks",
    )
    pad_shards: bool = option(
        False,
        "repeat records drawn at random, fewer than there are shards, so that all "
        "shards have exactly as many (always so with nranks)",
        saved=False,
        applies="output_dir and no nranks",
    )
    split: str = option(
        "train",
        "part of the data set: train, val, test, as far as it has them",
        saved=False,
    )
    memory_mb: int = option(
        256,
        "megabytes (2^20) to work in; the result is the same with any",
        lower=8,
        saved=False,
        applies="output_dir or nranks",
    )
    preview: str = option(
        "",
        "PNG file to draw: what each augmentation and preprocessing makes of the "
        "first pictures; without output_dir nothing else is done",
        saved=False,
    )
    data_dir: str = option(
        "",
        "folder of base64 part files, instead of dataset_dir (PLSC's tool, data_dir)",
        saved=False,
    )
    file_list: str = option(
        "",
        "file that names the part files in data_dir, one per line; looked for in "
        "data_dir, then in the working directory (PLSC's tool, file_list)",
        saved=False,
    )
    nranks: int = option(
        0,
        "number of base64 files to write, all with as many lines; output_dir is then "
        "<data_dir>/shuffled_<nranks> where it is not set (PLSC's tool, nranks)",
        lower=0,
        saved=False,
    )

    def __post_init__(self):
        super().__post_init__()
        if bool(self.pairs) != (self.output_format == "bin"):
            raise ValueError(
                "pairs are written with output_format=bin, which takes nothing else. "
                f"Received: pairs={self.pairs!r}, output_format={self.output_format}."
            )
        complete = self.data_dir and self.file_list and self.nranks
        if self.is_plsc and not complete:
            raise ValueError(
                "data_dir, file_list and nranks belong together: the folder of part "
                "files, the file that names them, and the number of files to write. "
                f"Received: data_dir={self.data_dir!r}, file_list={self.file_list!r}, "
                f"nranks={self.nranks}."
            )

    @property
    def is_plsc(self):
        """Whether the options of PLSC's tool are used."""
        return bool(self.data_dir or self.file_list or self.nranks)
