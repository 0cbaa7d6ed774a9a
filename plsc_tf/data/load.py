"""Finding a data set by its name and turning it into batches or pairs."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from types import ModuleType

from absl import logging

from plsc_tf.data import paths
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.pairs import Pairs, load_pairs
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.layouts import Layout
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source
from plsc_tf.hints import did_you_mean
from plsc_tf.storage import files, oss

_PACKAGE = "plsc_tf.datasets"


def load(
    name: str,
    dataset_dir: str = "",
    *,
    batch_size: int,
    image_size: tuple[int, int] = (112, 112),
    augmentation: str | Augmentation | None = "auto",
    seed: int = 0,
    **fields,
) -> Batches:
    """Opens a data set as batches, ready for `Classifier.fit`.

    Args:
        name: a module of datasets/ ("mock", "ms1m", "folder", ...) or the dotted
            path of a module of your own with `examples(request)`, or with
            `parse_fn(record)` for TFRecords (FastNN).
        dataset_dir: folder of the data set.
        batch_size: images per batch, over all replicas.
        image_size: (height, width) in pixels.
        augmentation: "face" mirrors, "none" or None changes nothing, "own" is what
            the preprocessing does by itself, "auto" is that or, without one, what
            suits the data set, and nothing unless training; or an `Augmentation`.
        seed: of the order and the augmentation.
        **fields: other fields of `DataRequest` (num_classes, split, train_files, ...)
            and of `PipelineOptions` (preprocessing, use_caching, ...). `training` and
            `shuffle` are True for split="train", the default, and False for any other:
            its images come in the order of the files, framed as for evaluation.
    """
    module = find(name)
    for field in ("training", "shuffle"):
        fields.setdefault(field, fields.get("split", "train") == "train")
    if augmentation == "auto" and not fields["training"]:
        augmentation = None
    elif augmentation == "auto":
        own = "preprocessing" in fields
        augmentation = "own" if own else suitable_preprocessing(module)
    if augmentation != "own":
        augmentation = Augmentation.named(augmentation)
    known = {"image_size": image_size, "seed": seed}
    option_names = [field.name for field in dataclasses.fields(PipelineOptions)]
    request_names = [field.name for field in dataclasses.fields(DataRequest)]
    for field in fields:
        if field not in option_names and field not in request_names:
            hint = did_you_mean(field, option_names + request_names)
            raise ValueError(f"load has no argument {field!r}.{hint}")
    options = PipelineOptions(
        augmentation=augmentation,
        **known,
        **{key: value for key, value in fields.items() if key in option_names},
    )
    request = DataRequest(
        dataset_dir=str(dataset_dir),
        **known,
        **{key: value for key, value in fields.items() if key in request_names},
    )
    return Batches(open_source(name, request), batch_size, options=options)


def open_source(name: str, request: DataRequest) -> Source:
    """Opens the examples that a request asks of a data set.

    Args:
        name: see `load`.
        request: with train_files, a module's `parse_fn` reads their records (FastNN):
            a record, a string scalar, to (image, label).

    Raises:
        ValueError: the data set has nothing but TFRecords, and none are named; or
            train_files are given for another split than "train".
    """
    with oss.masking(request.dataset_dir):
        return find_layout(name, request).open()


def find_layout(name: str, request: DataRequest) -> Layout:
    """Finds out how the files of a data set lie; raises as `open_source`."""
    module = find(name)
    with oss.masking(request.dataset_dir):
        return _find_layout(name, module, _with_keys(request))


def _find_layout(name, module, request):
    if request.train_files and request.split != "train":
        raise ValueError(
            "train_files are the training records, which are no other split. Received: "
            f"split={request.split!r}, train_files={','.join(request.train_files)}. "
            f"Leave out train_files for the {request.split} split of {name!r} itself, "
            "or the split for these files (`load` takes training=False, shuffle=False)."
        )
    parse_fn = getattr(module, "parse_fn", None)
    if takes_records(module) or parse_fn:
        request = _with_records(request)
        if request.train_files:
            own_name = module.__name__.removeprefix(f"{_PACKAGE}.")
            classes = info(module).num_classes
            return layouts.records(request, own_name, classes, parse_fn)
    if hasattr(module, "layout"):
        return module.layout(request)
    if hasattr(module, "examples"):
        return layouts.SourceLayout(request, module.examples)
    raise ValueError(
        f"The data set {name!r} has a parse_fn, which reads TFRecord files: name "
        f"them. Received: train_files=(), split={request.split!r}."
    )


def _with_records(request):
    """The request with train_files if dataset_dir holds only TFRecords (FastNN)."""
    if request.split != "train" or request.train_files:
        return request
    names = paths.tfrecords(request.dataset_dir)
    if names:
        logging.info(
            "%s holds TFRecord files: training on %d of them, from %s to %s. "
            "train_files names others.",
            oss.masked(request.dataset_dir),
            len(names),
            names[0].rpartition("/")[2],
            names[-1].rpartition("/")[2],
        )
    return dataclasses.replace(request, train_files=tuple(names))


def _with_keys(request):
    folder = request.dataset_dir
    if not oss.is_oss(folder) or oss.holds_keys(folder):
        return request
    return dataclasses.replace(request, dataset_dir=oss.with_keys(folder))


def info(module: ModuleType) -> DatasetInfo:
    """Returns the `INFO` of a data set; an empty one if it has none."""
    return getattr(module, "INFO", DatasetInfo(description=""))


def takes_records(module: ModuleType) -> bool:
    """Whether train_files of a data set are TFRecord files that plsc_tf reads."""
    return info(module).tfrecords


def suitable_preprocessing(module: ModuleType) -> str:
    """The preprocessing that a data set asks for: "none" for digits and letters."""
    return info(module).augmentation


def names() -> list[str]:
    """Names of the data sets that come with plsc_tf, sorted."""
    package = importlib.import_module(_PACKAGE)
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def find(name: str) -> ModuleType:
    """Returns the module of a data set; see `load` for what a name may be."""
    dotted = name
    if name.lower() in names():
        dotted = f"{_PACKAGE}.{name.lower()}"
    elif "." not in name and not _importable(name):
        hint = did_you_mean(name, names())
        raise ValueError(
            f"There is no data set {name!r}.{hint} Known: {', '.join(names())}; or a "
            "module of your own, by its dotted path."
        )
    try:
        module = importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{dotted}.".startswith(f"{error.name}."):
            raise  # The user's module exists and itself misses a package.
        # Python has imported the parent by now.
        parent, _, last = dotted.rpartition(".")
        if hasattr(sys.modules.get(parent), last):
            raise ValueError(
                f"A data set is a module, not what is in it. Received: {dotted!r}. "
                f"Give {parent!r}."
            ) from error
        raise ValueError(
            f"There is no module {dotted!r} (no {error.name!r}). Give the dotted path "
            "of a module that Python can import; is its folder in PYTHONPATH?"
        ) from error
    if not any(hasattr(module, one) for one in ("layout", "examples", "parse_fn")):
        raise ValueError(
            f"The module {dotted!r} is no data set: it has no function "
            "examples(request) that returns a Source, and no parse_fn(record) that "
            f"returns (image, label). plsc_tf's own: {', '.join(names())}."
        )
    return module


def _importable(name: str) -> bool:
    """Whether the user has a module of this name outside of packages."""
    # A script that runs, __main__, has no spec to be found.
    return name in sys.modules or (
        name.isidentifier() and importlib.util.find_spec(name) is not None
    )


def load_val(name: str, request: DataRequest, target: str) -> Pairs:
    """Opens the verification pairs that a validation target names.

    Args:
        name: of the data set, see `load`.
        request: what was asked of it; its dataset_dir is where targets lie.
        target: path of a .bin or .txt, or the name of <dataset_dir>/<target>.bin, or
            a set that the data set itself knows.

    Raises:
        FileNotFoundError: there is no such set; says where it was looked for.
    """
    with oss.masking(request.dataset_dir):
        return _load_val(name, _with_keys(request), target)


def _load_val(name, request, target):
    tried = [target]
    if request.dataset_dir:
        below = paths.join(request.dataset_dir, target)
        tried = [f"{below}.bin", below, target]
    for path in tried:
        if path.endswith((".bin", ".txt")) and files.exists(path):
            return load_pairs(path)
    own_pairs = getattr(find(name), "pairs", None)
    pairs = own_pairs(request, target) if own_pairs else None
    if pairs is not None:
        return pairs
    advice = "Give other --val_targets"
    if own_pairs:
        default = inspect.signature(own_pairs).parameters["target"].default
        advice += f", such as {default!r}, which it has" * isinstance(default, str)
    raise FileNotFoundError(
        f"There is no verification set {target!r}. Looked for: {', '.join(tried)} and "
        f"a set of this name in the data set {name!r}. {advice}, or "
        "train without verification: --with_test=false."
    )
