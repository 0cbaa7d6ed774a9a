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
import functools
import os
import struct
from collections.abc import Callable

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from plsc_tf.data.unpickle import load_plain

# framework.proto, VarType.Type.
_NAMES = {0: "?", 1: "<i2", 2: "<i4", 3: "<i8", 4: "<f2", 5: "<f4", 6: "<f8"}
DTYPES = {kind: np.dtype(name) for kind, name in {**_NAMES, 20: "u1", 21: "i1"}.items()}
PICKLED = (".pdparam", ".pdopt", ".pdparams")
# The name map of a state dict in `paddle.save`'s dicts.
_NAME_TABLE = "StructuredToParameterName@@"
# The header of a variable is some 30 bytes.
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


def variables(path: str) -> list[Variable]:
    """The variables in a file, most often one, whose name is the file's.

    Args:
        path: a local file.

    Raises:
        ValueError: the file is cut off, or is no file of Paddle.
    """
    file_name = os.path.basename(path)
    name, extension = os.path.splitext(file_name)
    with open(path, "rb") as file:
        pickled = extension in PICKLED and file.read(1) == b"\x80"
    if not pickled:
        name = name if extension in PICKLED else file_name
        return [Variable(name, path, read(path).shape, lambda: read(path))]
    arrays = _unpickle(path, name)
    if len(arrays) > 1:
        return [
            Variable(key, path, array.shape, functools.partial(np.asarray, array))
            for key, array in arrays.items()
        ]
    # It may be a shard of the head, which is read again when it is written.
    return [
        Variable(key, path, shape, lambda: next(iter(_unpickle(path, name).values())))
        for key, shape in [(key, array.shape) for key, array in arrays.items()]
    ]


def read(path: str) -> np.ndarray:
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
    except (struct.error, KeyError, ValueError, message.DecodeError) as error:
        raise ValueError(
            f"{path} is no variable in Paddle's binary form, or is cut off: {error!r}"
        ) from None
    expected = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    size = os.path.getsize(path)
    if size != expected:
        raise ValueError(
            f"{path} is damaged: {dtype} of shape {list(shape)} takes {expected:,} "
            f"bytes, and the file has {size:,}. Copy it again."
        )
    return np.memmap(path, dtype, "r", offset, shape)


def _read_header(header):
    """Returns (dtype, shape, offset of the numbers)."""
    version, levels = struct.unpack_from("<IQ", header)
    if version or levels > 16:
        raise ValueError("it does not begin like one")
    offset = 12
    for _ in range(levels):
        (size,) = struct.unpack_from("<Q", header, offset)
        offset += 8 + size
    version, size = struct.unpack_from("<Ii", header, offset)
    end = offset + 8 + size
    if version or not offset + 8 <= end <= len(header):
        raise ValueError("it has no complete description of a tensor")
    description = _tensor_description()()
    description.ParseFromString(header[offset + 8 : end])
    return DTYPES[description.type], tuple(description.dims), end


@functools.cache
def _tensor_description():
    """The class of TensorDesc messages."""
    proto = descriptor_pb2.FileDescriptorProto(name="paddle.proto", package="paddle")
    fields = proto.message_type.add(name="TensorDesc").field
    # Of type int64: 1 is optional and 3 repeated.
    fields.add(name="type", number=1, type=3, label=1)
    fields.add(name="dims", number=2, type=3, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("paddle.TensorDesc")
    )


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
    content = load_plain(data, path, names=names)
    arrays, content = {}, content if isinstance(content, dict) else {name: content}
    for key, value in content.items():
        key = key.decode() if isinstance(key, bytes) else str(key)
        if isinstance(value, list) and len(value) == 2:
            value = value[1]  # (name, array), how eager tensors are stored
        if isinstance(value, np.ndarray):
            arrays[key] = value
        elif key != _NAME_TABLE:
            raise ValueError(
                f"{path} holds a {type(value).__name__} as '{key}', not an array: it "
                "was not written by PLSC."
            )
    return arrays
