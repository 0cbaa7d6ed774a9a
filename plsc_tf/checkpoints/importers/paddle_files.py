"""Reading Paddle's files of variables, without Paddle and without running a pickle.

A variable is stored in one of two forms. The binary one (`save_vars`, little endian):

    uint32               version of the stream, 0
    uint64               levels of detail; for each: uint64 bytes, then the bytes
    uint32               version of the tensor, 0
    int32                bytes of a TensorDesc
    TensorDesc           protobuf: 1 = type (enum), 2 = dimensions (repeated int64)
    the numbers, row by row

Source: Paddle `paddle/fluid/framework/lod_tensor.cc`, `tensor_util.cc`,
`framework.proto`; checked against files of Paddle 3.3. The other form (`paddle.save`)
is a pickle of a numpy array, alone or in a dict by name.
"""

import dataclasses
import os
import struct
from collections.abc import Callable

import numpy as np

from plsc_tf.data.unpickle import load_plain

# framework.proto, VarType.Type.
DTYPES = {
    0: np.dtype("?"),
    1: np.dtype("<i2"),
    2: np.dtype("<i4"),
    3: np.dtype("<i8"),
    4: np.dtype("<f2"),
    5: np.dtype("<f4"),
    6: np.dtype("<f8"),
    20: np.dtype("u1"),
    21: np.dtype("i1"),
}
PICKLED = (".pdparam", ".pdopt", ".pdparams")
# How the name map of a state dict is called in `paddle.save`'s dicts.
_NAME_TABLE = "StructuredToParameterName@@"
# The header of a variable is some 30 bytes; what claims more is no header.
_HEADER_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable in a file.

    Attributes:
        name: Paddle's name of it.
        path: the file.
        shape: of the array.
        open: function that returns the array; it may be mapped from the file.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    open: Callable[[], np.ndarray]


def variables(path):
    """The variables in a file, most often one, whose name is the file's.

    Args:
        path: a local file.

    Returns:
        list of `Variable`.

    Raises:
        ValueError: the file is cut off, or is no file of Paddle.
    """
    name, extension = os.path.splitext(os.path.basename(path))
    pickled = extension in PICKLED
    if not pickled:
        name = os.path.basename(path)
    with open(path, "rb") as file:
        pickled &= file.read(1) == b"\x80"
    if not pickled:
        return [Variable(name, path, read(path).shape, lambda: read(path))]
    found = _unpickle(path, name)
    if len(found) == 1:
        # It may be a shard of the head: it is let go, and read when it is written.
        shapes = {key: array.shape for key, array in found.items()}
        return [
            Variable(
                key, path, shape, lambda: next(iter(_unpickle(path, name).values()))
            )
            for key, shape in shapes.items()
        ]
    return [
        Variable(key, path, array.shape, lambda array=array: array)
        for key, array in found.items()
    ]


def read(path):
    """The array in a file of the binary form, mapped and not loaded.

    Args:
        path: a local file.

    Raises:
        ValueError: the file is cut off, longer than it says, or another file.
    """
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    try:
        dtype, shape, offset = _read_header(header)
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(
            f"{path} is no variable in Paddle's binary form, or is cut off: {error}"
        ) from None
    expected = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    size = os.path.getsize(path)
    if size != expected:
        raise ValueError(
            f"{path} is damaged: {dtype} of shape {list(shape)} takes {expected:,} "
            f"bytes, and the file has {size:,}. Copy it again."
        )
    if size == offset:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)


def _read_header(header):
    """Returns (dtype, shape, offset of the numbers)."""
    version, levels = struct.unpack_from("<IQ", header)
    _require(version == 0 and levels < 16, "it does not begin like one")
    offset = 12
    for _ in range(levels):
        (size,) = struct.unpack_from("<Q", header, offset)
        offset += 8 + size
    version, size = struct.unpack_from("<Ii", header, offset)
    offset += 8
    _require(version == 0 and size >= 0, "it has no description of a tensor")
    _require(offset + size <= len(header), "its description is not complete")
    kind, shape = _read_description(header[offset : offset + size])
    _require(kind in DTYPES, f"numbers of Paddle's type {kind} are not known")
    return DTYPES[kind], shape, offset + size


def _read_description(data):
    """Type and dimensions out of a TensorDesc message."""
    kind, shape, position = None, [], 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        value, position = _read_varint(data, position)
        if tag == 0x08:
            kind = value
        elif tag == 0x10:
            shape.append(value)
        elif tag == 0x12:  # packed: `value` is the bytes that they take
            end = position + value
            while position < end:
                value, position = _read_varint(data, position)
                shape.append(value)
        else:
            raise ValueError(f"a description with the unknown field {tag >> 3}")
    return kind, tuple(shape)


def _read_varint(data, position):
    """Protobuf's integers: 7 bits a byte, the lowest first."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _require(condition, problem):
    if not condition:
        raise ValueError(problem)


def _unpickle(path, name):
    """The arrays in a file of `paddle.save` as `{name: array}`."""
    with open(path, "rb") as file:
        data = file.read()

    def evaluate(expression, scope=None):
        # Paddle pickles a tensor as eval("data", {"data": array}).
        if expression not in ("data", b"data") or not isinstance(scope, dict):
            raise ValueError("eval of something else than 'data'")
        return next(iter(scope.values()))

    names = {(module, "eval"): evaluate for module in ("builtins", "__builtin__")}
    names["collections", "OrderedDict"] = lambda items=(): dict(items)
    found = load_plain(data, path, names=names, what="weights")
    if isinstance(found, list) and len(found) == 2:
        found = found[1]  # (name, array), how eager tensors are stored
    if not isinstance(found, dict):
        found = {name: found}
    arrays = {}
    for key, value in found.items():
        key = key.decode() if isinstance(key, bytes) else str(key)
        if isinstance(value, list) and len(value) == 2:
            value = value[1]
        if isinstance(value, np.ndarray):
            arrays[key] = value
        elif key != _NAME_TABLE:
            raise ValueError(
                f"{path} holds a {type(value).__name__} as '{key}', not an array: it "
                "was not written by PLSC."
            )
    return arrays
