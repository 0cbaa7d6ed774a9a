"""Reads files of `torch.save` without PyTorch and without executing pickled code.

PyTorch's own reader, even with `weights_only=True`, let forged files run code before
version 2.10 (CVE-2025-32434, CVE-2026-24747).

A file is a zip archive of the pickle <name>/data.pkl and the uncompressed numbers of
each storage, <name>/data/<key>. Tensors are calls of a function with a storage, an
offset, a shape and strides. Source: PyTorch's `torch/serialization.py` and
`torch/_utils.py`.
"""

import mmap
import os
import re
import struct
import zipfile
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.checkpoints.importers.layers import reading
from plsc_tf.data.unpickle import load_plain
from plsc_tf.requirements import require

_DTYPES = {"Double": "f8", "Float": "f4", "Half": "f2", "Bool": "?"}
_DTYPES |= {"Long": "i8", "Int": "i4", "Short": "i2", "Char": "i1", "Byte": "u1"}
_DTYPES["BFloat16"] = tf.bfloat16.as_numpy_dtype
_MOST_MEMBERS = 1 << 16
_STORAGES = {("torch", f"{kind}Storage"): kind for kind in _DTYPES}


def load(path: str) -> Any:
    """Returns the object in a file; its tensors are arrays that are mapped from it.

    Args:
        path: a local file.

    Raises:
        ValueError: the file is damaged, or contains more than tensors and plain data.
    """
    with open(path, "rb") as file, reading(path, "from torch.save of PyTorch 1.6 on"):
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # For each entry of its directory, zipfile keeps almost a kilobyte.
        members = sum(1 for _ in re.finditer(b"PK\1\2", mapped))
        require(members <= _MOST_MEMBERS, "it has too many members")
        data, places = _archive(path, mapped)
    whole = np.frombuffer(mapped, np.uint8)

    def stored(identity):
        _, kind, key, _, count, *view = identity
        # The hash of tuples within each other could take for ever.
        require(type(key) is type(kind) is str and not any(view), "no plain storage")
        dtype = np.dtype(_DTYPES[kind])
        return whole[places[key] :][: count * dtype.itemsize].view(dtype)

    def tensor(stored, offset, shape, strides, gradient, hooks, negated=None):
        step = stored.itemsize
        numbers = [offset, *shape, *strides]
        # numpy's own check may overflow, and so may its numbers.
        plain = all(type(n) is int and 0 <= n < 1 << 48 for n in numbers)
        require(plain and not negated, "a tensor of other numbers")
        reach = [s * max(n - 1, 0) for n, s in zip(shape, strides, strict=True)]
        require(offset + sum(reach) <= len(stored), "a tensor outside of its storage")
        strides = [step * stride for stride in strides]
        return np.ndarray(shape, stored.dtype, stored, step * offset, strides)

    names = {
        **_STORAGES,
        ("torch._utils", "_rebuild_tensor_v2"): tensor,
        ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
    }
    return load_plain(data, path, names=names, find=stored)


def check_size(path: str, size: int) -> None:
    """Raises ValueError if the contents of a file are larger than the file."""
    if size > os.path.getsize(path):
        raise ValueError(f"{path} unpacks to {size:,} bytes, more than the file has")


def _archive(path, mapped):
    """Returns (the pickle, {key of a storage: its position}) of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_size(path, sum(member.file_size for member in members))
        require(not any(one.compress_type for one in members), "it is compressed")
        (main,) = (one for one in members if one.filename.endswith("/data.pkl"))
        data, folder = archive.read(main), main.filename.removesuffix(".pkl") + "/"
    places = {}
    for member in members:
        # A header of 30 bytes ends in the lengths of a name and of more facts.
        lengths = struct.unpack_from("<2H", mapped, member.header_offset + 26)
        place = member.header_offset + 30 + sum(lengths)
        places[member.filename.removeprefix(folder)] = place
    require(len(places) == len(members), "two of its members have the same name")
    return data, places
