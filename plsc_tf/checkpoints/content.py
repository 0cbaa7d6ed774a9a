"""The content of a checkpoint, unchanged while training continues.

TensorFlow never changes a value that something refers to: an update of a variable whose
value is referred to elsewhere writes to new memory. So a checkpoint's content is a
set of references, which takes no time to make; memory is taken only where training
overtakes the writing, at most once the weights and slots.
"""

import dataclasses
import io

import keras
import numpy as np
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.checkpoints.late_errors import late_errors

# Rows of a file; the last file of an array may be smaller.
FILE_BYTES = 256_000_000


@dataclasses.dataclass
class Content:
    """The content of one checkpoint.

    Attributes:
        kind: "training", which a run can resume from, or "weights".
        state: JSON-compatible dict.
        network: the backbone, a Keras model.
        values: `[(keras.Variable, tensor)]` of all its variables.
        variables: `{name: tensor}` that only a resume needs.
        arrays: `{name: rows}`, each with `shape`, `dtype`, `here()`, `pieces(low,
            high)` and `release(low, high)`: `ShardedRows`, `ReplicatedRows` or what
            they hold.
    """

    kind: str
    state: dict
    network: keras.Model
    values: list
    variables: dict
    arrays: dict

    def save_backbone(self, path):
        """Writes Keras's own weights file, which `load_weights` reads."""
        scope = keras.StatelessScope(state_mapping=self.values)
        with scope, late_errors(path) as file:
            private_apis.save_weights(self.network, file)

    def save_variables(self, path):
        """Writes `variables` as one numpy archive."""
        arrays = {name: np.asarray(value) for name, value in self.variables.items()}
        with late_errors(path) as file:
            np.savez(file, **arrays)

    def describe_backbone(self):
        """Paths, shapes and types of the weights that the weights file holds."""
        held = {id(variable): tensor for variable, tensor in self.values}
        return [
            {"path": weight.path, "shape": list(weight.shape), "dtype": weight.dtype}
            for weight in self.network.weights
            if id(weight) in held
        ]

    def describe_variables(self):
        """Shapes and types of `variables`."""
        return {
            name: {"shape": list(value.shape), "dtype": tf.as_dtype(value.dtype).name}
            for name, value in self.variables.items()
        }


def parts(name, array):
    """How the rows of an array that are here are cut into files.

    Args:
        name: of the array.
        array: has `shape`, `dtype` and `here()`.

    Returns:
        list of `{"file", "first", "last"}`; `last` is the last row itself.
    """
    first, end = array.here()
    row_bytes = row_size(array.shape, array.dtype)
    header = len(npy_header(array, array.shape[0]))
    step = max(1, (FILE_BYTES - header) // row_bytes)
    plain = name.replace("/", ".")
    return [
        {
            "file": f"rows/{plain}-{low:010d}-{min(low + step, end):010d}.npy",
            "first": low,
            "last": min(low + step, end) - 1,
        }
        for low in range(first, end, step)
    ]


def row_size(shape, dtype):
    """Bytes of one row of `[rows, ...]`."""
    return int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize


def npy_header(array, rows):
    """The beginning of a numpy file of so many rows of an array."""
    buffer = io.BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(array.dtype)),
        "fortran_order": False,
        "shape": (rows, *array.shape[1:]),
    }
    np.lib.format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


def npy_chunks(array, low, high):
    """The bytes of a numpy file of the rows `[low, high)`, piece by piece."""
    yield npy_header(array, high - low)
    for piece in array.pieces(low, high):
        yield np.ascontiguousarray(piece)
