"""A checkpoint of another library: its contents, and their places here."""

import dataclasses
import os

import numpy as np

from plsc_tf.checkpoints.importers import arcface_torch, layers, plsc
from plsc_tf.checkpoints.importers.rows import ShardedFiles

FORMATS = {"arcface_torch": arcface_torch, "plsc": plsc}


@dataclasses.dataclass(frozen=True)
class Source:
    """The contents of another library's checkpoint; class rows stay in their files.

    Attributes:
        format: "arcface_torch" or "plsc".
        backbone: `{name there: array}`.
        backbone_file: the file or folder that it comes from.
        arrays: `{name here: rows}` of the head: "weight", "bias"; empty without a
            head.
        ranks: over how many devices the head was split there; 0 without one.
        num_classes: as the checkpoint states it, or None.
        loss: PLSC's loss type as far as the head's name tells, or None.
        left: names of contents that have no place here.
    """

    format: str
    backbone: dict[str, np.ndarray]
    backbone_file: str
    arrays: dict[str, ShardedFiles] = dataclasses.field(default_factory=dict)
    ranks: int = 0
    num_classes: int | None = None
    loss: str | None = None
    left: list[str] = dataclasses.field(default_factory=list)


def read(path, format="auto"):
    """Opens a checkpoint of arcface_torch or PLSC and checks that it is complete.

    Args:
        path: its folder, or one file of it.
        format: a key of `FORMATS`, or "auto".

    Returns:
        a `Source`.

    Raises:
        FileNotFoundError: nothing exists there, or a part of the checkpoint is missing.
        ImportError: PyTorch is needed and not installed.
        ValueError: it is of neither library, damaged, or its parts do not fit.
    """
    folder, names = _files(path)
    if format == "auto":
        formats = [key for key, one in FORMATS.items() if one.recognises(folder, names)]
        if len(formats) != 1:
            raise ValueError(
                f"Cannot tell whether {path} is a checkpoint of "
                f"{' or of '.join(FORMATS)}. Found: "
                f"{layers.listed(names) or 'no files'}. Set import_format if it is one."
            )
        (format,) = formats
    return Source(format=format, **FORMATS[format].read(folder, names))


def assign(source, backbone):
    """Puts a checkpoint's weights into a network, all of them or none.

    Args:
        source: the `Source`.
        backbone: a Keras model of `plsc_tf.backbones`.

    Raises:
        ValueError: the checkpoint is of another network; what is missing, unknown or
            of another shape is named.
    """
    module = FORMATS[source.format]
    weights = source.backbone
    places = module.places(backbone, weights)
    if places is None:
        raise ValueError(
            f"Weights of {source.format} do not go into '{backbone.name}', which is "
            f"another kind of network. {module.hint(weights)}"
        )
    layers.assign(
        places,
        module.prepare(weights),
        source.backbone_file,
        f"'{backbone.name}'",
        module.hint(weights),
    )


def _files(path):
    """(folder, names of the files that belong to the checkpoint)."""
    if "://" in path:
        raise ValueError(
            "Checkpoints of other libraries are read from local disks. Received: "
            f"import_from={path!r}. Copy it here first."
        )
    if os.path.isdir(path):
        names = sorted(
            name
            for name in os.listdir(path)
            if os.path.isfile(os.path.join(path, name))
        )
        return path, names
    if not os.path.isfile(path):
        raise FileNotFoundError(f"import_from '{path}' is neither a folder nor a file.")
    folder, name = os.path.split(path)
    folder = folder or "."
    # One rank's file stands for those of all ranks.
    if "_gpu_" in name:
        stem = name.rpartition("_gpu_")[0]
        names = [other for other in os.listdir(folder) if other.startswith(stem)]
        return folder, sorted(names)
    return folder, [name]
