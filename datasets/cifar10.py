"""CIFAR-10 from the binary batches, from class folders, or from TFRecords."""

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.by_request import requested_records
from plsc_tf.data.readers.class_folders import class_folders
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import IndexedSource, Source, on_host

INFO = DatasetInfo(
    description="photographs of ten kinds of things, 32x32",
    num_classes=10,
    num_examples=50_000,
    image_size=(32, 32),
    source="Krizhevsky: Learning multiple layers of features from tiny images, 2009",
)
_TRAIN_BATCHES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE


def examples(request: DataRequest) -> Source:
    """Reads whichever layout the folder holds; train_files means TFRecords."""
    classes = request.num_classes or INFO.num_classes
    folder = request.dataset_dir
    if request.train_files:
        return requested_records(request, "cifar10", INFO)
    paths.require_folder(folder)
    split = "train" if request.split == "train" else "test"
    names = _TRAIN_BATCHES if split == "train" else ("test_batch.bin",)
    below = paths.join(folder, "cifar-10-batches-bin")
    for place in (folder, below):
        if tf.io.gfile.exists(paths.join(place, names[0])):
            return _binary(place, names, classes, request.labels_offset)
    if tf.io.gfile.isdir(paths.join(folder, split)):
        return class_folders(paths.join(folder, split), num_classes=classes)
    raise FileNotFoundError(
        f"dataset_dir {folder!r} has neither {names[0]} nor {split}/ with class "
        f"folders. {paths.found(folder)} Unpack the binary version of CIFAR-10 there, "
        "or give TFRecords with --train_files."
    )


def _binary(folder: str, names, classes: int, labels_offset: int) -> Source:
    """Reads records of one label byte and three planes of 32x32."""
    records = []
    for name in names:
        path = paths.join(folder, name)
        if not tf.io.gfile.exists(path):
            raise FileNotFoundError(f"{folder!r} has no {name}. {paths.found(folder)}")
        with tf.io.gfile.GFile(path, "rb") as stream:
            data = np.frombuffer(stream.read(), np.uint8)
        if not data.size or data.size % _RECORD:
            raise ValueError(
                f"{path} is no CIFAR-10 batch or is cut off: expected a multiple of "
                f"{_RECORD} bytes. Received: {data.size} bytes. Copy it again."
            )
        records.append(data.reshape(-1, _RECORD))
    firsts = np.cumsum([0] + [len(batch) for batch in records])
    table = np.concatenate(records)
    planes = table[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    pictures = on_host(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)))

    def describe(index: int) -> str:
        part = int(np.searchsorted(firsts, index, side="right")) - 1
        return f"image {index - firsts[part]} of {paths.join(folder, names[part])}"

    return IndexedSource(
        "cifar10",
        table[:, 0].astype(np.int64) - labels_offset,
        lambda index: tf.gather(pictures, index),
        num_classes=classes,
        describe=describe,
    )
