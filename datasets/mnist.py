"""MNIST digits, 28x28 and gray, from the four idx files, gzipped or not.

LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition,
1998. An idx file of unsigned bytes consists of two zero bytes, the type (8), the rank,
one big-endian 32-bit size per dimension, and the values.
"""

import functools
import gzip
import io
import math
import struct
import zlib

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.readers import layouts
from plsc_tf.requirements import prefix_errors, require, require_one_of
from plsc_tf.storage import files

INFO = layouts.DatasetInfo(num_classes=10, augmentation="none", tfrecords=True)
# "val" is an alias because other data sets use this name for their evaluation images.
_PREFIXES = {"train": "train", "test": "t10k", "val": "t10k"}
_UNSIGNED_BYTES = 8


def layout(request: layouts.DataRequest) -> layouts.ArraysLayout:
    """Finds train-*-ubyte[.gz] or t10k-*-ubyte[.gz]."""
    require_one_of(_PREFIXES, split=request.split)
    prefix = _PREFIXES[request.split]
    folder = paths.require_folder(request.dataset_dir)

    def describe(index: int) -> str:
        return f"image {index} of {folder}/{prefix}-images-idx3-ubyte"

    classes, load = INFO.num_classes, functools.partial(_read, folder, prefix)
    return layouts.ArraysLayout(request, "mnist", classes, load, describe)


def _read(folder: str, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images, uint8 `[n, h, w, 1]`, and labels, uint8 `[n]`."""
    images = _read_idx(folder, f"{prefix}-images-idx3-ubyte", rank=3)
    labels = _read_idx(folder, f"{prefix}-labels-idx1-ubyte", rank=1)
    # A longer row would be resized to as many rows as others have.
    good = images.size and max(images.shape[1:]) <= 4096 and len(images) == len(labels)
    rule = f"{folder}/{prefix}-images-idx3-ubyte must hold one image per label, of at "
    rule += "most 4096 pixels a side"
    require(good, rule, images=images.shape, labels=len(labels))
    return images[..., np.newaxis], labels


def _read_idx(folder: str, name: str, rank: int) -> np.ndarray:
    """Reads `name` or `name`.gz.

    Raises:
        FileNotFoundError: neither file exists.
        ValueError: it is not an idx file, is truncated, or is longer than its header
            declares.
    """
    path = paths.join(folder, name)
    if not files.exists(path):
        path += ".gz"
    if not files.exists(path):
        advice = "mnist needs the four idx files."
        raise paths.no_file(folder, f"{name} or {name}.gz", advice)
    content = files.read(path)
    rule = f"{path} is not an idx file or is cut off"
    kinds = OSError, EOFError, zlib.error, struct.error
    with prefix_errors(rule, *kinds, advice="Copy it again"):
        stream = io.BytesIO(content)
        stream = gzip.open(stream) if path.endswith(".gz") else stream
        # A kilobyte could unpack to a megabyte; those of EMNIST unpack to five.
        data = stream.read((1 << 26) + 8 * len(content))
        magic, shape = data[:4], struct.unpack_from(f">{rank}I", data, 4)
        values = memoryview(data)[4 + 4 * rank :]
        fits = magic == bytes([0, 0, _UNSIGNED_BYTES, rank])
        require(fits, f"it begins with {magic.hex()}")
        size, count = " x ".join(map(str, shape)), len(values)
        rule = f"its header says {size}; received {count} bytes"
        require(count == math.prod(shape), rule)
    return np.frombuffer(values, np.uint8).reshape(shape)
