"""CIFAR-10: 32x32 photographs, from the binary batches or from class folders.

Krizhevsky: Learning multiple layers of features from tiny images, 2009.
"""

import functools
from collections.abc import Sequence

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.readers import layouts, packed
from plsc_tf.requirements import require
from plsc_tf.storage import files

INFO = layouts.DatasetInfo(num_classes=10, tfrecords=True)
_TRAIN_BATCHES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE


def layout(request: layouts.DataRequest) -> layouts.Layout:
    """Finds the binary batches or the class folders."""
    folder = paths.require_folder(request.dataset_dir)
    split = "train" if request.split == "train" else "test"
    names = _TRAIN_BATCHES if split == "train" else ("test_batch.bin",)
    for place in (folder, paths.join(folder, "cifar-10-batches-bin")):
        if files.exists(paths.join(place, names[0])):
            return _binary(request, [paths.join(place, name) for name in names])
    if files.is_dir(paths.join(folder, split)):
        return layouts.images_in_folders(request)
    advice = "Unpack the binary version of CIFAR-10, or set train_files to TFRecords."
    sought = f"{names[0]}, and no {split}/ with class folders"
    raise paths.no_file(folder, sought, advice)


def _binary(request: layouts.DataRequest, batches: list[str]) -> layouts.ArraysLayout:
    """Returns the layout of the batches: a label byte and three 32x32 planes each."""
    describe = packed.Records(batches, list(map(_count, batches))).describe
    load, classes = functools.partial(_read, batches), INFO.num_classes
    return layouts.ArraysLayout(request, "cifar10", classes, load, describe)


def _count(path: str) -> int:
    """Returns the number of records in a file, from its size."""
    size = files.size(path)
    rule = f"{path} must be a CIFAR-10 batch, of a multiple of {_RECORD} bytes"
    require(size and not size % _RECORD, rule, "Copy it again", bytes=size)
    return size // _RECORD


def _read(batches: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns images, uint8 `[n, 32, 32, 3]`, and labels, int64 `[n]`."""
    data = b"".join(files.read(path) for path in batches)
    table = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    planes = table[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return images, table[:, 0].astype(np.int64)
