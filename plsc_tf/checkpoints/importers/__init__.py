"""Imports weights from checkpoints of PLSC and arcface_torch."""

import dataclasses
import os

import keras
import numpy as np

from plsc_tf.checkpoints.importers import arcface_torch, layers, plsc
from plsc_tf.checkpoints.rows import Rows
from plsc_tf.requirements import require

FORMATS = {"arcface_torch": arcface_torch, "plsc": plsc}


@dataclasses.dataclass(frozen=True)
class Source:
    """The contents of another library's checkpoint; class rows stay in their files.

    Attributes:
        format: "arcface_torch" or "plsc".
        backbone: `{name in the other library: array}`.
        backbone_file: the file or folder that contains the backbone.
        arrays: `{our name: rows}` for the head's "weight" and "bias"; empty without a
            head.
        ranks: number of devices that the head was split over; 0 without a head.
        num_classes: number of classes that the checkpoint states, or None.
        loss: PLSC's loss type if the head's name implies it, or None.
        left: names of contents that are not imported.
    """

    format: str
    backbone: dict[str, np.ndarray]
    backbone_file: str
    arrays: dict[str, Rows] = dataclasses.field(default_factory=dict)
    ranks: int = 0
    num_classes: int | None = None
    loss: str | None = None
    left: list[str] = dataclasses.field(default_factory=list)


def read(path: str) -> Source:
    """Opens a checkpoint of arcface_torch or PLSC and checks that it is complete.

    Args:
        path: the checkpoint's folder, or one of its files.

    Raises:
        FileNotFoundError: the path does not exist, or a part of the checkpoint is
            missing.
        ValueError: neither library wrote the checkpoint, it is damaged, or its parts
            do not fit together.
    """
    folder, names = _files(path)
    formats = [key for key, one in FORMATS.items() if one.recognizes(names)]
    rule = f"Cannot tell whether {path} is a checkpoint of {' or '.join(FORMATS)}"
    found = layers.listed(names) or "none"
    advice = "Set import_from to one of its files if the folder has others"
    require(len(formats) == 1, rule, advice, files=found)
    (name,) = formats
    return Source(format=name, **FORMATS[name].read(folder, names))


def assign(source: Source, backbone: keras.Model) -> None:
    """Assigns a checkpoint's weights to a network; assigns either all or none.

    Args:
        source: the `Source`.
        backbone: a Keras model from `plsc_tf.backbones`.

    Raises:
        ValueError: the checkpoint belongs to another network; the message lists
            weights that are missing, unknown or of a different shape.
    """
    module, weights = FORMATS[source.format], source.backbone
    hint = module.hint(weights)
    names = module.layer_names(backbone, weights)
    rule = f"{source.format}'s weights are of another architecture than {backbone.name}"
    require(names is not None, rule, hint)
    places = layers.places(backbone, names, module.NAMES)
    arrays = module.prepare(weights)
    problems = layers.differences(places, arrays)
    rule = f"{source.backbone_file} does not contain the weights of '{backbone.name}'"
    require(not problems, f"{rule}: {problems}", hint)
    for place in places:
        place.variable.assign(place.convert(np.asarray(arrays[place.name])))


def _files(path):
    """Returns (folder, names of the files that belong to the checkpoint)."""
    rule, advice = "import_from must be a local path", "Copy the checkpoint here first"
    require("://" not in path, rule, advice, import_from=path)
    if os.path.isdir(path):
        return path, sorted(entry.name for entry in os.scandir(path) if entry.is_file())
    if not os.path.isfile(path):
        raise FileNotFoundError(f"import_from '{path}' is neither a folder nor a file.")
    folder, name = os.path.split(path)
    folder = folder or "."
    # If the path is one rank's file, the other ranks' files belong to the checkpoint.
    stem, rank, _ = name.rpartition("_gpu_")
    if not rank:
        return folder, [name]
    return folder, [other for other in _files(folder)[1] if other.startswith(stem)]
