"""CIFAR-10 from the binary batches or from class folders."""

import dataclasses

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.by_request import requested_classes
from plsc_tf.data.readers.layouts import ArraysLayout, LayoutRequest
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import IndexedSource, Source, on_host
from plsc_tf.storage import files

INFO = DatasetInfo(
    description="photographs of ten kinds of things, 32x32",
    num_classes=10,
    num_examples=50_000,
    image_size=(32, 32),
    source="Krizhevsky: Learning multiple layers of features from tiny images, 2009",
    tfrecords=True,
)
_TRAIN_BATCHES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE


def examples(request: DataRequest) -> Source:
    """Reads whichever layout the folder holds."""
    folder = request.dataset_dir
    classes = request.num_classes or INFO.num_classes
    paths.require_folder(folder)
    split = "train" if request.split == "train" else "test"
    names = _TRAIN_BATCHES if split == "train" else ("test_batch.bin",)
    below = paths.join(folder, "cifar-10-batches-bin")
    for place in (folder, below):
        if files.exists(paths.join(place, names[0])):
            return _binary(request, [paths.join(place, name) for name in names])
    if files.is_dir(paths.join(folder, split)):
        request = dataclasses.replace(request, num_classes=classes)
        return requested_classes(request, paths.join(folder, split))
    raise FileNotFoundError(
        f"dataset_dir {folder!r} has neither {names[0]} nor {split}/ with class "
        f"folders. {paths.found(folder)} Unpack the binary version of CIFAR-10 there, "
        "or give TFRecords with --train_files."
    )


def _binary(request: DataRequest, batch_files: list[str]) -> Source:
    """Reads records of one label byte and three planes of 32x32."""
    sizes = [_count(file) for file in batch_files]
    firsts = np.cumsum([0, *sizes])

    def describe(index: int) -> str:
        part = int(np.searchsorted(firsts, index, side="right")) - 1
        return f"image {index - firsts[part]} of {batch_files[part]}"

    if isinstance(request, LayoutRequest):
        return ArraysLayout("cifar10", lambda: _read(batch_files), describe)
    images, labels = _read(batch_files)
    pictures = on_host(images)
    source = IndexedSource(
        "cifar10",
        labels - request.labels_offset,
        lambda index: tf.gather(pictures, index),
        num_classes=request.num_classes or INFO.num_classes,
        describe=describe,
        stamp=lambda: ",".join(batch_files),
    )
    source.heeds = frozenset({"labels_offset"})
    return source


def _count(path: str) -> int:
    """The number of records that a file has by its size."""
    if not files.exists(path):
        folder, _, name = path.rpartition("/")
        raise FileNotFoundError(f"{folder!r} has no {name}. {paths.found(folder)}")
    size = files.size(path)
    if not size or size % _RECORD:
        raise ValueError(
            f"{path} is no CIFAR-10 batch or is cut off: expected a multiple of "
            f"{_RECORD} bytes. Received: {size} bytes. Copy it again."
        )
    return size // _RECORD


def _read(batch_files: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns uint8 images [n, 32, 32, 3] and int64 labels [n]."""
    batches = []
    for path in batch_files:
        data = np.frombuffer(files.read(path), np.uint8)
        batches.append(data.reshape(-1, _RECORD))
    table = np.concatenate(batches)
    planes = table[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return images, table[:, 0].astype(np.int64)
