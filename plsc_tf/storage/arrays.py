"""Reads arrays from .npy files."""

import functools
import io

import numpy as np

from plsc_tf.storage import files, local
from plsc_tf.storage.paths import local_path


def read(path: str) -> np.ndarray:
    """Returns the array in a .npy file; a local file is mapped into memory, read-only.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or holds no array of numbers.
    """
    if files.is_local(path):
        path = local_path(path)
        local.require_file(path)
        # `np.load` would also open archives.
        load = functools.partial(np.lib.format.open_memmap, path, mode="r")
    else:
        load = functools.partial(np.lib.format.read_array, io.BytesIO(files.read(path)))
    try:
        return load()
    except OSError:
        raise
    except Exception as error:  # numpy raises errors of many types
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from error
