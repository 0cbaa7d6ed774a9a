"""MNIST digits from the four idx files, gzipped or not."""

import gzip
import struct

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.by_request import requested_records
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import IndexedSource, Source, on_host

INFO = DatasetInfo(
    description="handwritten digits, 28x28 grey",
    num_classes=10,
    num_examples=60_000,
    image_size=(28, 28),
    source="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to "
    "document recognition, 1998",
    augmentation="none",
)
# "val" is what other data sets call the images that were not trained on.
_PREFIXES = {"train": "train", "test": "t10k", "val": "t10k"}
_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049


def examples(request: DataRequest) -> Source:
    """Reads train-*-ubyte[.gz] or t10k-*-ubyte[.gz], or TFRecords when given."""
    classes = request.num_classes or INFO.num_classes
    folder = request.dataset_dir
    if request.train_files:
        return requested_records(request, "mnist", INFO)
    if request.split not in _PREFIXES:
        raise ValueError(
            f"mnist has the splits {', '.join(_PREFIXES)}. "
            f"Received: split={request.split!r}."
        )
    prefix = _PREFIXES[request.split]
    paths.require_folder(folder)
    images = read_idx(folder, f"{prefix}-images-idx3-ubyte", _IMAGES_MAGIC)
    labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte", _LABELS_MAGIC)
    if len(images) != len(labels):
        raise ValueError(
            f"The idx files of {folder!r} do not belong together. "
            f"Received: {len(images)} images, {len(labels)} labels."
        )
    pictures = on_host(images[..., np.newaxis])
    return IndexedSource(
        "mnist",
        labels.astype(np.int64) - request.labels_offset,
        lambda index: tf.gather(pictures, index),
        num_classes=classes,
        describe=lambda index: f"image {index} of {folder}/{prefix}-images-idx3-ubyte",
    )


def read_idx(folder: str, name: str, magic: int) -> np.ndarray:
    """Reads an idx file of unsigned bytes.

    Args:
        folder: that holds the file.
        name: of the file; name.gz is taken too.
        magic: number the file starts with; its last byte is the rank.
    """
    path = paths.join(folder, name)
    if not tf.io.gfile.exists(path):
        path += ".gz"
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {name} or {name}.gz. "
            f"{paths.found(folder)} mnist needs the four idx files."
        )
    with tf.io.gfile.GFile(path, "rb") as stream:
        data = stream.read()
    try:
        data = gzip.decompress(data) if path.endswith(".gz") else data
        received, *shape = struct.unpack_from(f">{1 + magic % 256}i", data)
        values = np.frombuffer(data, np.uint8, offset=4 * (1 + len(shape)))
        if received != magic:
            raise ValueError(f"it starts with {received}, not {magic}")
        return values.reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise ValueError(
            f"{path} is no idx file or is cut off: {error}. Copy it again."
        ) from error
