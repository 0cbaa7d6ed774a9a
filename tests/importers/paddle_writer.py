"""Files as Paddle writes them, from the description of the format."""

import json
import pickle
import struct

import numpy as np

from tests.data.pickled import Call

TYPES = {"float16": 4, "float32": 5, "float64": 6, "int64": 3}


def stream(array, packed=False):
    """The binary form of a variable."""
    dims = b"".join(varint(size) for size in array.shape)
    if packed:
        dims = b"\x12" + varint(len(dims)) + dims
    else:
        dims = b"".join(b"\x10" + varint(size) for size in array.shape)
    description = b"\x08" + varint(TYPES[array.dtype.name]) + dims
    head = struct.pack("<IQIi", 0, 0, 0, len(description))
    return head + description + array.tobytes()


def varint(value):
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def write_checkpoint(folder, arrays, shards):
    """A checkpoint of PLSC 0.1: arrays by name, and each rank's rows of the head."""
    arrays = dict(arrays)
    for rank, rows in enumerate(shards):
        name = f"dist@arcface@rank@{rank:05d}.w_0"
        arrays[name] = np.ascontiguousarray(rows.T)
        arrays[f"{name}_velocity_0"] = arrays[name] / 2
    for name, array in arrays.items():
        (folder / name).write_bytes(stream(array))
    meta = {"pretrain_nranks": len(shards), "emb_dim": shards[0].shape[1]}
    meta["num_classes"] = sum(map(len, shards))
    (folder / "meta.json").write_text(json.dumps(meta))


def saved(array, protocol=4):
    """The bytes of `paddle.save` of one tensor."""
    return pickle.dumps(Call(eval, "data", {"data": array}), protocol)
