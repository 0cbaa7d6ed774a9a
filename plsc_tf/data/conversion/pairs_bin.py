"""Writes verification sets as insightface and PLSC read them."""

from __future__ import annotations

import pickle

import numpy as np

from plsc_tf.data.pairs import Pairs
from plsc_tf.storage import files

# The oldest protocol with bytes of more than 4 GB; Python 3.4 and later read it.
_PROTOCOL = 4


def write_bin(path: str, pairs: Pairs) -> int:
    """Writes a .bin: a pickle of (list of encoded images, list of bools).

    Images 2 i and 2 i + 1 are pair i, see insightface's lfw2pack.py. Their bytes stay
    unchanged; those of an image in several pairs are written once.

    Args:
        path: of the new file.
        pairs: with encoded images.

    Returns:
        bytes written.

    Raises:
        FileExistsError: the file exists.
        ValueError: the images are decoded ones.
    """
    if isinstance(pairs.images, np.ndarray):
        raise ValueError(
            f"A .bin holds encoded images. Received: {pairs.name!r}, whose images are "
            "pixels."
        )
    if files.exists(path):
        raise FileExistsError(f"{path!r} exists; nothing is overwritten.")
    rows = np.stack([pairs.left, pairs.right], axis=1).reshape(-1).tolist()
    content = ([pairs.images[row] for row in rows], pairs.same.tolist())
    data = pickle.dumps(content, protocol=_PROTOCOL)
    files.make_dirs(files.parent(path))
    files.replace(path, data)
    return len(data)
