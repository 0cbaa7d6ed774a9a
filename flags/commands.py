"""Groups of one command each: check, convert, embed, import_checkpoint, launch."""

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option


class Checking(OptionGroup, saved=False):
    """The input and output of `python -m plsc_tf.check`."""

    report: str = option("", "write the findings to this .json file")
    cleaned_list: str = option(
        "", "write a list of the good images, 'path label' lines, to this new file"
    )
    check_split: str = option("train", "split of the data set to check")
    near_duplicates: bool = option(
        False,
        "also look for images similar to those of the verification sets",
        applies="val_targets",
    )
    check_threads: int = option(0, "threads that decode; 0: one per core", lower=0)


class Conversion(OptionGroup, saved=False):
    """The output of `python -m plsc_tf.convert`, and PLSC's names for it."""

    output_dir: str = option("", "local folder to make; nothing is overwritten")
    output_format: str = option(
        "tfrecord",
        "tfrecord (FastNN's keys), base64 (PLSC's), or bin, of pairs (insightface)",
        choices=("tfrecord", "base64", "bin"),
        aliases=("to",),
    )
    pairs: str = option(
        "", "for bin: LFW's, CALFW's or CPLFW's pairs.txt, or 'left right 1' lines"
    )
    pairs_dir: str = option(
        "",
        "folder of the images of pairs; empty: that of the file",
        applies="output_dir and no nranks",
    )
    num_shards: int = option(
        8,
        "files of equal numbers of records; take a multiple of the replicas",
        lower=1,
        applies="output_dir and no nranks",
    )
    shuffle: bool = option(
        True, "shuffle all records by the seed", applies="output_dir or nranks"
    )
    pad_shards: bool = option(
        False,
        "repeat random records so that all shards have the same number",
        applies="output_dir and no nranks",
    )
    split: str = option("train", "part of the data set: train, val or test")
    memory_mb: int = option(
        256, "megabytes (2^20) to work in", lower=8, applies="output_dir or nranks"
    )
    preview: str = option("", "PNG file of the first images after each augmentation")
    data_dir: str = option("", "folder of base64 part files (PLSC's tool)")
    file_list: str = option("", "file that names the part files (PLSC's tool)")
    nranks: int = option(
        0,
        "base64 files to write into <data_dir>/shuffled_<nranks> (PLSC's tool)",
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


class Embedding(OptionGroup, saved=False):
    """From images to a file of embeddings (`python -m plsc_tf.embed`)."""

    images: str = option(
        "", "folder of images, or a text file with one per line (and ten landmarks)"
    )
    image_dir: str = option("", "folder of listed images; empty: that of the list")
    landmarks: str = option(
        "", "align the images: file of 'image x y x y x y x y x y' lines, in pixels"
    )
    output: str = option(
        "",
        ".npy file to write, float32 [images, embedding_size], and .txt with the names",
        check=checks.npy_file,
    )
    saved_model: str = option("", "use this exported model instead of a checkpoint")
    flip: bool | None = option(
        None, "add the embedding of each mirror image; None: as verification does"
    )
    normalize: bool = option(False, "divide each embedding by its length, at the end")
    embed_batch_size: int = option(128, "images per step, over all replicas", lower=1)

    REFUSED = {
        "saved_model and checkpoint_dir": "saved_model and checkpoint_dir both name a "
        "model; set one of them.",
    }


class Importing(OptionGroup, saved=False):
    """The input of `python -m plsc_tf.import_checkpoint`."""

    import_from: str = option("", "local folder or file of the checkpoint to import")
    import_format: str = option(
        "auto",
        "arcface_torch (needs the extra [torch]), plsc, or auto: by the files",
        choices=("auto", "arcface_torch", "plsc"),
    )


class Launching(OptionGroup, saved=False):
    """How `python -m plsc_tf.launch` runs the workers of this machine."""

    selected_gpus: tuple[int, ...] = option(
        (),
        "GPUs of this machine to use, split over its workers; empty: all (PLSC)",
        lower=0,
        check=checks.unique,
    )
    log_dir: str = option("", "folder of one log per worker; empty: none (Paddle)")
    max_restarts: int = option(0, "restarts of all workers after one failed", lower=0)
    module: str = option(
        "plsc_tf.train", "Python module that the workers run", applies="no script"
    )
