"""MNIST digits from the four idx files, gzipped or not."""

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.layouts import ArraysLayout, LayoutRequest
from plsc_tf.data.records.idx import read_idx_file
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import IndexedSource, Source, on_host
from plsc_tf.storage import files

INFO = DatasetInfo(
    description="handwritten digits, 28x28 grey",
    num_classes=10,
    num_examples=60_000,
    image_size=(28, 28),
    source="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to "
    "document recognition, 1998",
    augmentation="none",
    tfrecords=True,
)
# "val" is what other data sets call the images that were not trained on.
_PREFIXES = {"train": "train", "test": "t10k", "val": "t10k"}
_IMAGES_RANK, _LABELS_RANK = 3, 1


def examples(request: DataRequest) -> Source:
    """Reads train-*-ubyte[.gz] or t10k-*-ubyte[.gz]."""
    classes = request.num_classes or INFO.num_classes
    folder = request.dataset_dir
    if request.split not in _PREFIXES:
        raise ValueError(
            f"mnist has the splits {', '.join(_PREFIXES)}. "
            f"Received: split={request.split!r}."
        )
    prefix = _PREFIXES[request.split]
    paths.require_folder(folder)

    def describe(index: int) -> str:
        return f"image {index} of {folder}/{prefix}-images-idx3-ubyte"

    if isinstance(request, LayoutRequest):
        return ArraysLayout("mnist", lambda: _read(folder, prefix), describe)
    images, labels = _read(folder, prefix)
    pictures = on_host(images)
    source = IndexedSource(
        "mnist",
        labels.astype(np.int64) - request.labels_offset,
        lambda index: tf.gather(pictures, index),
        num_classes=classes,
        describe=describe,
        stamp=lambda: folder,
    )
    source.heeds = frozenset({"labels_offset"})
    return source


def _read(folder: str, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns uint8 images [n, h, w, 1] and labels [n]."""
    images = read_idx(folder, f"{prefix}-images-idx3-ubyte", _IMAGES_RANK)
    labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte", _LABELS_RANK)
    if len(images) != len(labels):
        raise ValueError(
            f"The idx files of {folder!r} do not belong together. "
            f"Received: {len(images)} images, {len(labels)} labels."
        )
    if not images.size:
        raise ValueError(
            f"{folder}/{prefix}-images-idx3-ubyte holds no pixels. "
            f"Received: shape={images.shape}."
        )
    return images[..., np.newaxis], labels


def read_idx(folder: str, name: str, rank: int) -> np.ndarray:
    """Reads an idx file of unsigned bytes.

    Args:
        folder: that holds the file.
        name: of the file; name.gz is taken too.
        rank: number of dimensions.
    """
    path = paths.join(folder, name)
    if not files.exists(path):
        path += ".gz"
    if not files.exists(path):
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {name} or {name}.gz. "
            f"{paths.found(folder)} mnist needs the four idx files."
        )
    return read_idx_file(path, rank)
