"""Reads Paddle's variable files without Paddle and without executing pickled code.

A variable is stored in one of two formats. The binary format (`save_vars`) is
little-endian:

    uint32               version of the stream, 0
    uint64               levels of detail; a weight has 0
    uint32               version of the tensor, 0
    int32                bytes of a TensorDesc
    TensorDesc           protobuf: 1 = type (enum), 2 = dimensions (repeated int64)
    the numbers, row by row

Source: Paddle `paddle/fluid/framework/lod_tensor.cc`, `tensor_util.cc`,
`framework.proto`; checked against files written by Paddle 3.3. The other format
(`paddle.save`) is a pickle of a numpy array, or of a dict of arrays by name.
"""

import functools
import math
import os
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from plsc_tf.checkpoints.importers.layers import reading
from plsc_tf.data.protobuf import message_class
from plsc_tf.data.unpickle import load_plain
from plsc_tf.requirements import require

# Data types by their number in framework.proto, VarType.Type.
_NAMES = {0: "?", 1: "<i2", 2: "<i4", 3: "<i8", 4: "<f2", 5: "<f4", 6: "<f8"}
DTYPES = {kind: np.dtype(name) for kind, name in {**_NAMES, 20: "u1", 21: "i1"}.items()}
PICKLED = (".pdparam", ".pdopt", ".pdparams")
# Key of the name table that `paddle.save` adds to a state dict.
_NAME_TABLE = "StructuredToParameterName@@"
# A generous limit: the header of a variable takes about 30 bytes.
_HEADER_BYTES = 1 << 16
_HEADER = struct.Struct("<IQIi")
_TENSOR = message_class({"TensorDesc": "type 1 INT64, dims 2 INT64*"}, "paddle")


class Variable(NamedTuple):
    """A variable in a file.

    Attributes:
        name: the variable's name in Paddle.
        path: the file.
        shape: the array's shape.
        open: function that returns the array, which may be mapped from the file.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    open: Callable[[], np.ndarray]


def variables(path: str) -> list[Variable]:
    """Returns the variables in a file: usually one, with the file's name.

    Args:
        path: a local file.

    Raises:
        ValueError: the file is truncated or wasn't written by Paddle.
    """
    file_name = os.path.basename(path)
    name, extension = os.path.splitext(file_name)
    with open(path, "rb") as file:
        pickled = extension in PICKLED and file.read(1) == b"\x80"
    if not pickled:
        name = name if extension in PICKLED else file_name
        return [Variable(name, path, read(path).shape, lambda: read(path))]
    arrays = _unpickle(path, name)

    def again():
        return next(iter(_unpickle(path, name).values()))

    # A single array may be a large shard of the head, so it isn't kept in memory, but
    # is read again when it is needed.
    found = []
    for key, array in arrays.items():
        opens = functools.partial(np.asarray, array) if len(arrays) > 1 else again
        found.append(Variable(key, path, array.shape, opens))
    return found


def read(path: str) -> np.ndarray:
    """Maps the array in a binary file into memory without loading it.

    Args:
        path: a local file.

    Raises:
        ValueError: the file is truncated, longer than its header says, or in a
            different format.
    """
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    with reading(path, "a variable in Paddle's binary format"):
        dtype, shape, offset = _read_header(header)
    expected = offset + math.prod(shape) * dtype.itemsize
    size = os.path.getsize(path)
    rule = f"{path} is damaged: {dtype} of shape {list(shape)} takes {expected:,} bytes"
    fits = size == expected and min(shape, default=1) >= 1
    require(fits, rule, "Copy it again", size=f"{size:,}")
    return np.memmap(path, dtype, "r", offset, shape)


def _read_header(header):
    """Returns (dtype, shape, offset of the numbers)."""
    *zeros, size = _HEADER.unpack_from(header)
    start, end = _HEADER.size, _HEADER.size + size
    if any(zeros) or not start <= end <= len(header):
        raise ValueError("the dtype and shape are missing or incomplete")
    description = _TENSOR.FromString(header[start:end])
    return DTYPES[description.type], tuple(description.dims), end


def _unpickle(path, name):
    """Returns the arrays in a file written by `paddle.save` as `{name: array}`."""
    with open(path, "rb") as file:
        data = file.read()

    def evaluate(expression, scope=None):
        # Paddle pickles a tensor as eval("data", {"data": array}).
        if expression not in ("data", b"data") or not isinstance(scope, dict):
            raise ValueError("eval of an expression other than 'data'")
        return next(iter(scope.values()))

    names = {(module, "eval"): evaluate for module in ("builtins", "__builtin__")}
    content = load_plain(data, path, names=names)
    arrays, content = {}, content if isinstance(content, dict) else {name: content}
    for key, value in content.items():
        key = key.decode() if isinstance(key, bytes) else str(key)
        if isinstance(value, list) and len(value) == 2:
            value = value[1]  # Eager tensors are stored as (name, array).
        if isinstance(value, np.ndarray):
            arrays[key] = value
        else:
            rule = f"'{key}' in {path} must be an array, as PLSC writes it"
            require(key == _NAME_TABLE, rule, type=type(value).__name__)
    size = sum(array.nbytes for array in arrays.values())
    require(size <= len(data), f"{path} has an array under many names", bytes=size)
    return arrays
