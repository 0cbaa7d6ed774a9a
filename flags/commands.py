"""Defines the options of align, check, convert, embed, import_checkpoint and launch."""

from plsc_tf.flags import checks
from plsc_tf.flags.option import Amount, Count, OptionGroup, Positive, option, option_if

_records = option_if("output_dir or nranks")
_shards = option_if("output_dir and no nranks")


class Alignment(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.align`."""

    detector: str = option("mtcnn", "mtcnn or 'module:name'", applies="no landmarks")
    faces: str = option("largest", "which faces", choices="largest central all")
    min_face_size: Amount = option(40.0, "drop smaller faces, by their side in pixels")
    min_sharpness: Amount = option(0.0, "drop faces with less variance of their edges")


class Checking(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.check`."""

    report: str = option("", ".json file for the findings", check=checks.json_file)
    cleaned_list: str = option("", "new file with lines 'path label' of good images")
    near_duplicates: bool = option(
        False, "also find near-duplicates of verification images", applies="val_targets"
    )


class Conversion(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.convert`, including those of PLSC's tool."""

    output_dir: str = option("", "local folder to create; files are never overwritten")
    output_format: str = option(
        "tfrecord",
        "tfrecord (with FastNN's keys), base64 (PLSC), or bin, for pairs (insightface)",
        choices="tfrecord base64 bin",
        aliases="to",
    )
    pairs: str = option(
        "", "for bin: pairs.txt of LFW, CALFW or CPLFW, or lines 'left right 1'"
    )
    num_shards: Positive = _shards(
        8, "number of files, of nearly equal length; best a multiple of the replicas"
    )
    shuffle: bool = _records(True, "shuffle all records, by the seed")
    pad_shards: bool = _shards(
        False, "repeat random records so that all shards have the same size"
    )
    split: str = option("train", "part of the data set: train, val or test")
    memory_mb: int = _records(256, "megabytes (2^20 bytes) of memory to use", lower=8)
    preview: str = option("", "PNG file for the first images after each augmentation")
    data_dir: str = option("", "folder of base64 part files (PLSC's tool)")
    file_list: str = option("", "file with the names of the part files (PLSC's tool)")
    nranks: Count = option(
        0, "number of files in <data_dir>/shuffled_<nranks> (PLSC's tool)"
    )

    REFUSED = {
        "pairs and no output_format=bin or output_format=bin and no pairs": (
            "Set pairs and output_format=bin together, or neither of them."
        ),
        "data_dir and no file_list or file_list and no nranks or nranks and no "
        "data_dir": "Set data_dir, file_list and nranks together, or none of them.",
    }


class Embedding(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.embed`."""

    images: str = option("", "folder of images, or a list with one per line")
    image_dir: str = option("", "folder of the listed images; empty: that of the list")
    landmarks: str = option("", "file with lines 'image x y x y x y x y x y' in pixels")
    output: str = option(
        "", "new .npy file [images, emb_size]; names go to .txt", check=checks.npy_file
    )
    saved_model: str = option(
        "",
        "export or ONNX file to use instead of a checkpoint, or export that measures "
        "the quality",
    )
    min_quality: float = option(
        0.0, "drop images of lower quality; needs saved_model", within="[0, 1]"
    )
    flip: bool | None = option(
        None, "add the embedding of each mirror image; None: as in verification"
    )
    normalize: bool = option(False, "finally, divide each embedding by its length")

    REFUSED = {
        "saved_model and checkpoint_dir or saved_model and embeddings": "Set only one "
        "of these options.",
        "min_quality and no saved_model": "Only an export knows the quality of images.",
        "detect and landmarks": "Set only one of these two options.",
    }


class Importing(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.import_checkpoint`."""

    import_from: str = option("", "local folder or file of the checkpoint to import")


class Launching(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.launch`."""

    selected_gpus: tuple[Count, ...] = option(
        (),
        "GPUs of this machine, split over its workers; empty: all (PLSC)",
        check=checks.unique,
    )
    log_dir: str = option("", "folder for each worker's log; empty: no logs (Paddle)")
    max_restarts: Count = option(0, "restarts of all workers after one fails")
    module: str = option("plsc_tf.train", "module of the workers", applies="no script")
