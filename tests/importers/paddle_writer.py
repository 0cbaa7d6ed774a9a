"""Files as Paddle writes them, from the description of the format."""

import pickle
import struct

import numpy as np

TYPES = {"float16": 4, "float32": 5, "float64": 6, "int64": 3}


def stream(array, levels=(), packed=False):
    """The binary form of a variable."""
    dims = b"".join(varint(size) for size in array.shape)
    if packed:
        dims = b"\x12" + varint(len(dims)) + dims
    else:
        dims = b"".join(b"\x10" + varint(size) for size in array.shape)
    description = b"\x08" + varint(TYPES[array.dtype.name]) + dims
    parts = [struct.pack("<IQ", 0, len(levels))]
    for level in levels:
        raw = np.asarray(level, "<u8").tobytes()
        parts += [struct.pack("<Q", len(raw)), raw]
    parts += [struct.pack("<Ii", 0, len(description)), description]
    return b"".join([*parts, array.tobytes()])


def varint(value):
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


class Tensor:
    """Pickles as a tensor of Paddle's static graph does."""

    def __init__(self, array):
        self.array = array

    def __reduce__(self):
        return eval, ("data", {"data": self.array})


def saved(array, protocol=4):
    """The bytes of `paddle.save` of one tensor."""
    return pickle.dumps(Tensor(array), protocol)
