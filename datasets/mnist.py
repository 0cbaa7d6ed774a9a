"""MNIST digits from the four idx files, gzipped or not."""

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.readers import layouts
from plsc_tf.data.records.idx import read_idx_file
from plsc_tf.data.request import DataRequest, DatasetInfo
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
# Other data sets call the images that are not trained on "val".
_PREFIXES = {"train": "train", "test": "t10k", "val": "t10k"}
_IMAGES_RANK, _LABELS_RANK = 3, 1


def layout(request: DataRequest) -> layouts.ArraysLayout:
    """Finds train-*-ubyte[.gz] or t10k-*-ubyte[.gz]."""
    if request.split not in _PREFIXES:
        raise ValueError(
            f"mnist has the splits {', '.join(_PREFIXES)}. "
            f"Received: split={request.split!r}."
        )
    prefix = _PREFIXES[request.split]
    folder = paths.require_folder(request.dataset_dir)
    return layouts.ArraysLayout(
        request,
        "mnist",
        INFO.num_classes,
        folder,
        lambda: _read(folder, prefix),
        lambda index: f"image {index} of {folder}/{prefix}-images-idx3-ubyte",
    )


examples = layouts.opens(layout)


def _read(folder: str, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns uint8 images [n, h, w, 1] and labels [n]."""
    images = read_idx(folder, f"{prefix}-images-idx3-ubyte", _IMAGES_RANK)
    labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte", _LABELS_RANK)
    if len(images) != len(labels) or not images.size:
        raise ValueError(
            f"{folder}/{prefix}-images-idx3-ubyte must hold one image per label. "
            f"Received: images of shape {images.shape}, {len(labels)} labels."
        )
    return images[..., np.newaxis], labels


def read_idx(folder: str, name: str, rank: int) -> np.ndarray:
    """Reads an idx file of unsigned bytes.

    Args:
        folder: that holds the file.
        name: of the file; name.gz is read too.
        rank: number of dimensions.
    """
    for ending in ("", ".gz"):
        path = paths.join(folder, name) + ending
        if files.exists(path):
            return read_idx_file(path, rank)
    raise FileNotFoundError(
        f"dataset_dir {folder!r} has no {name} or {name}.gz. "
        f"{paths.names_in(folder)} mnist needs the four idx files."
    )
