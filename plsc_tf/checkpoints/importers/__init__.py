"""Imports weights from checkpoints of PLSC and arcface_torch, and from ONNX files."""

import dataclasses
import os
from collections.abc import Callable

import keras
import numpy as np

from plsc_tf import private_apis
from plsc_tf.checkpoints.importers import arcface_torch, layers, onnx_files, plsc
from plsc_tf.checkpoints.rows import Rows
from plsc_tf.requirements import listed, require

# {format: its module, which recognizes a checkpoint by the names of its `FILES`}.
FORMATS = {"arcface_torch": arcface_torch, "onnx": onnx_files, "plsc": plsc}


@dataclasses.dataclass(frozen=True)
class Source:
    """The contents of another library's checkpoint; class rows stay in their files.

    Attributes:
        format: "arcface_torch", "onnx" or "plsc".
        backbone: `{name in the other library: array}`.
        backbone_file: the file or folder that contains the backbone.
        arrays: `{our name: rows}` for the head's "weight" and "bias"; empty without a
            head.
        ranks: number of devices that the head was split over; 0 without a head.
        num_classes: number of classes that the checkpoint states, or None.
        loss: PLSC's loss type if the head's name implies it, or None.
        left: names of contents that are not imported.
        prove: function that raises ValueError unless a network gives the embeddings
            that the files give; None if the files cannot compute any.
    """

    format: str
    backbone: dict[str, np.ndarray]
    backbone_file: str
    arrays: dict[str, Rows] = dataclasses.field(default_factory=dict)
    ranks: int = 0
    num_classes: int | None = None
    loss: str | None = None
    left: list[str] = dataclasses.field(default_factory=list)
    prove: Callable[[keras.Model], None] | None = None


def read(path: str) -> Source:
    """Opens a checkpoint or an ONNX file and checks that it is complete.

    Args:
        path: the checkpoint's folder, or one of its files.

    Raises:
        FileNotFoundError: the path does not exist, or a part of the checkpoint is
            missing.
        ImportError: the packages for ONNX files are missing.
        ValueError: none of the libraries wrote the checkpoint, it is damaged, or its
            parts do not fit together.
    """
    folder, names = files_of(path)
    formats = [k for k, one in FORMATS.items() if any(map(one.FILES.fullmatch, names))]
    rule = f"Cannot tell whether {path} is a checkpoint of {' or '.join(FORMATS)}"
    advice = "Set import_from to one of its files if the folder has others"
    require(len(formats) == 1, rule, advice, files=listed(names) or "none")
    (name,) = formats
    return Source(format=name, **FORMATS[name].read(folder, names))


def network(source: Source) -> dict:
    """Returns the options of the network whose weights a checkpoint holds.

    Raises:
        ValueError: it is unknown.
    """
    found = FORMATS[source.format].network(source.backbone)
    require(found, f"{source.backbone_file} has an unknown network", _hint(source))
    return found


def build(source: Source, make: Callable[[], keras.Model]) -> tuple:
    """Builds a network with a checkpoint's weights; returns it and that of `assign`.

    Its weights are created only if they fit the checkpoint's: otherwise, a small file
    could fill the memory.

    Args:
        source: the `Source`.
        make: function that builds a Keras model from `plsc_tf.backbones`.

    Raises:
        ValueError: see `assign`.
    """
    with private_apis.delayed_weights():
        backbone = make()
        weights = FORMATS[source.format].standard(source.backbone)
        found = layers.match(backbone, weights)
        places = layers.places(backbone, found)
        arrays = layers.unfold(backbone, found, weights)
        problems = layers.differences(places, arrays)
        rule = f"{source.backbone_file} does not contain the weights of "
        rule += f"'{backbone.name}'"
        require(not problems, f"{rule}: {problems}", _hint(source))
    for place in places:
        place.variable.assign(place.convert(np.asarray(arrays[place.name])))
    if source.prove is not None:
        source.prove(backbone)
    names = [name for name, theirs in found.items() if theirs.endswith(layers.FOLDED)]
    return backbone, names


def assign(source: Source, backbone: keras.Model) -> list[str]:
    """Assigns a checkpoint's weights to a network.

    Args:
        source: the `Source`.
        backbone: a Keras model from `plsc_tf.backbones`.

    Returns:
        names of batch normalizations without statistics: they were folded into other
        layers, so they only add a bias. Do not train them, but freeze them.

    Raises:
        ValueError: the checkpoint belongs to another network; the message lists
            weights that are missing, unknown or of a different shape, and nothing was
            assigned. Or the network gives other embeddings than an ONNX file.
    """
    return build(source, lambda: backbone)[1]


def _hint(source):
    """Returns advice that names the network, or those that are known."""
    module = FORMATS[source.format]
    options = module.network(source.backbone).items()
    words = " ".join(f"--{name}={value}" for name, value in options)
    return f"This looks like {words}" if words else module.KNOWN


def files_of(path):
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
    return folder, [other for other in files_of(folder)[1] if other.startswith(stem)]
