"""Maps arrays in local files into memory."""

import numpy as np

from plsc_tf.storage import local


def mapped(path: str) -> np.memmap:
    """Maps the array in a .npy file into memory, read-only.

    Args:
        path: a local file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or holds no array of numbers.
    """
    local.require_file(path)
    try:
        # `np.load` would also open archives.
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy raises errors of many types
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from error
