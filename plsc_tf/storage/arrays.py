"""Reads .npy files, and makes the headers of those that are written in pieces."""

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from plsc_tf.storage import files, local, paths


def read(path: str) -> np.ndarray:
    """Returns the array in a .npy file; a local file is mapped into memory, read-only.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or holds no array of numbers.
    """
    try:
        if not files.is_local(path):
            return np.lib.format.read_array(io.BytesIO(files.read(path)))
        local.require_file(paths.local_path(path))
        # `np.load` would also open archives.
        return np.lib.format.open_memmap(paths.local_path(path), mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy raises errors of many types
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from error


def npy_header(
    shape: Sequence[int], dtype: npt.DTypeLike, by_columns: bool = False
) -> bytes:
    """Returns the header of a .npy file in format 1.0, in C or in Fortran order."""
    stream, descr = io.BytesIO(), np.lib.format.dtype_to_descr(np.dtype(dtype))
    array = {"descr": descr, "fortran_order": by_columns, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(stream, array)
    return stream.getvalue()
