"""Finds a data set by name and opens it as batches or verification pairs."""

import collections
import dataclasses
import glob
import importlib
import os
import pkgutil
import re
from types import ModuleType

from absl import logging

from plsc_tf import dotted_paths
from plsc_tf.data import paths
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.pairs import Pairs, load_pairs
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.layouts import DataRequest, DatasetInfo
from plsc_tf.data.source import Source
from plsc_tf.requirements import did_you_mean, require
from plsc_tf.storage import files

_PACKAGE = "plsc_tf.datasets"
# Names that `convert` and TensorFlow Datasets give: train-00001-of-00004.tfrecord.
_PART = re.compile(r"(.*)-\d+-of-0*(\d+)(?:\..*)?")


def load(
    name: str,
    dataset_dir: str = "",
    *,
    batch_size: int,
    image_size: tuple[int, int] = (112, 112),
    augmentation: str | Augmentation | None = "own",
    seed: int = 0,
    **fields,
) -> Batches:
    """Opens a data set as batches, ready for `Classifier.fit`.

    Args:
        name: a module in datasets/ ("mock", "ms1m", "folder", ...) or the dotted path
            of your own module, which defines `examples(request)` or, for TFRecords,
            `parse_fn(record)` (FastNN).
        dataset_dir: folder of the data set.
        batch_size: global batch size, in images.
        image_size: (height, width) in pixels.
        augmentation: an `Augmentation` or the name of a preprocessing that has one:
            "face" mirrors images at random; "none" or None changes nothing; "own" uses
            that of `preprocessing`, by default the one that suits the data set. Without
            `training`, nothing is random.
        seed: random seed for shuffling and augmentation.
        **fields: other fields of `DataRequest` (num_classes, split, train_files, ...)
            and of `PipelineOptions` (preprocessing, use_caching, ...). `training` and
            `shuffle` default to True for split="train" (the default) and to False for
            other splits, whose images come in file order, framed for evaluation.
    """
    for field in ("training", "shuffle"):
        fields.setdefault(field, fields.get("split", "train") == "train")
    fields.setdefault("preprocessing", info(name).augmentation)
    fields.update(dataset_dir=str(dataset_dir), image_size=image_size, seed=seed)
    fields["augmentation"] = augmentation
    kinds = PipelineOptions, DataRequest
    known = [{field.name for field in dataclasses.fields(kind)} for kind in kinds]
    for field in fields.keys() - set.union(*known):
        hint = did_you_mean(field, set.union(*known))
        raise ValueError(f"load has no argument {field!r}.{hint}")
    given = [{key: fields[key] for key in names & fields.keys()} for names in known]
    options, request = PipelineOptions(**given[0]), DataRequest(**given[1])
    return Batches(open_source(name, request), batch_size, options=options)


def open_source(name: str, request: DataRequest) -> Source:
    """Opens the examples that a request describes.

    Args:
        name: see `load`.
        request: selects the examples. If it has train_files, the module's `parse_fn`
            maps each record, a string scalar, to (image, label) (FastNN).

    Raises:
        ValueError: the data set can only be read from TFRecords, and none are given;
            or train_files are given for a split other than "train".
    """
    return find_layout(name, request).open()


def find_layout(name: str, request: DataRequest) -> layouts.Layout:
    """Finds a data set's files and their layout; raises the errors of `open_source`."""
    split, train_files = request.split, request.train_files
    rule = "train_files replaces only the train split, so leave one of them out"
    advice = "To read them in order, unaugmented: training=False, shuffle=False"
    fits = split == "train" or not train_files
    require(fits, rule, advice, split=split, train_files=",".join(train_files))
    module = find(name)
    parse_fn = getattr(module, "parse_fn", None)
    if info(name).tfrecords or parse_fn:
        request = _with_records(request)
        if request.train_files:
            own_name = module.__name__.removeprefix(f"{_PACKAGE}.")
            return layouts.records(request, own_name, info(name).num_classes, parse_fn)
    if hasattr(module, "layout"):
        return module.layout(request)
    rule = f"The data set {name!r} reads only TFRecord files, for the train split"
    fits = hasattr(module, "examples")
    require(fits, rule, "Set train_files", train_files=(), split=repr(split))
    return layouts.SourceLayout(request, module.examples)


def _with_records(request):
    """Sets train_files if dataset_dir has TFRecords but no list or subfolder (FastNN).

    If any TFRecord file has "train" in its name, uses only such files.
    """
    folder = request.dataset_dir
    if request.split != "train" or request.train_files or not folder:
        return request
    matches = files.glob(paths.join(glob.escape(folder), "*.tfrecord*"))
    # Names, not paths, which would be looked up below the folder, too.
    names = [os.path.basename(path) for path in matches]
    records = [name for name in names if not name.endswith(paths.INDEX_ENDING)]
    # Asking a remote store about each of thousands of records would be slow.
    others = {*files.list_dir(folder)} - {*names} if records else set()
    folders = (name for name in others if files.is_dir(paths.join(folder, name)))
    if not records or files.exists(paths.join(folder, "label.txt")) or any(folders):
        return request
    chosen = [name for name in records if "train" in name] or records
    parts = collections.Counter(m.groups() for m in map(_PART.fullmatch, chosen) if m)
    found = {f"{name}-*-of-{n}": k for (name, n), k in parts.items() if k < int(n)}
    rule = "All parts of a data set must be there"
    require(not found, rule, "Copy the others, or set train_files", found=found)
    logging.info(
        f"Training on {len(chosen)} TFRecord files in {folder}, such as {chosen[0]}. "
        "Set train_files to choose other files."
    )
    return dataclasses.replace(request, train_files=tuple(map(glob.escape, chosen)))


def info(name: str) -> DatasetInfo:
    """Returns a data set's `INFO`, or the default one if it has none."""
    return getattr(find(name), "INFO", DatasetInfo())


def names() -> list[str]:
    """Returns the sorted names of the data sets included in plsc_tf."""
    package = importlib.import_module(_PACKAGE)
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def find(name: str) -> ModuleType:
    """Returns the module of a data set; see `load` for what a name may be."""
    own = name.lower() in names()
    dotted = f"{_PACKAGE}.{name.lower()}" if own else name
    try:
        module = dotted_paths.load_module(dotted, "data set")
    except ModuleNotFoundError:
        raise  # The user's module exists, but a package that it imports is missing.
    except ImportError as error:
        raise ValueError(
            f"There is no data set {name!r}.{did_you_mean(name, names())} Expected one "
            f"of {', '.join(names())}, or the dotted path of your own module. {error}"
        ) from error
    fits = any(hasattr(module, one) for one in ("layout", "examples", "parse_fn"))
    rule = f"The module {dotted!r} is not a data set"
    own = "Define examples(request) or parse_fn(record) in it"
    require(fits, rule, f"{own}, or use {', '.join(names())}")
    return module


def load_val(name: str, request: DataRequest, target: str) -> Pairs:
    """Opens the verification pairs of a validation target.

    Args:
        name: name of the data set; see `load`.
        request: request for the data set; its dataset_dir is the folder of targets.
        target: path of a .bin or .txt file, which counts before all else; the base name
            of one in dataset_dir; or the name of a verification set that the data set
            defines.

    Raises:
        FileNotFoundError: there is no such set; the message lists the paths tried.
    """
    tried = [target]
    if request.dataset_dir:
        below = paths.join(request.dataset_dir, target)
        tried += [f"{below}.bin", f"{below}.txt", below]
    for path in tried:
        if path.endswith((".bin", ".txt")) and files.exists(path):
            return load_pairs(path)
    module = find(name)
    pairs = module.pairs(request, target) if hasattr(module, "pairs") else None
    if pairs is not None:
        return pairs
    raise FileNotFoundError(
        f"There is no verification set {target!r}. Looked for: {', '.join(tried)} "
        f"and a set of this name in the data set {name!r}. Set "
        "--val_targets to another set, or --with_test=false to train without one."
    )
