"""Pictures that lie beside the listed ones and are in no line of any list."""

from __future__ import annotations

import array
import contextlib
import os

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.examine import hash64
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listing import ListedImages
from plsc_tf.data.readers import image_list


def find_unlisted(listing: ListedImages, count: int, findings: Findings) -> bool:
    """Looks through the folders that the list names for pictures it does not.

    Paths are compared as 64 bits each, so that millions fit.

    Args:
        listing: that was read.
        count: number of its items.
        findings: gets the pictures.

    Returns:
        False on remote file systems, where a walk could take hours.
    """
    if "://" in listing.folder:
        return False
    hashes, tops = _of_other_lists(listing), set()
    for index in range(count):
        path = os.path.normpath(listing.path(index))
        hashes.append(hash64(path))
        tops.add(path.split(b"/", 1)[0] if b"/" in path else b"")
    known = np.sort(np.array(hashes, np.uint64))
    root = os.fsencode(listing.folder.rstrip("/") or "/")
    for top in sorted(tops):
        for place, folders, files in os.walk(os.path.join(root, top)):
            if not top:
                # The data root itself holds pictures: its folders may be others'.
                folders.clear()
            _check(place, root, files, known, findings)
    return True


def _of_other_lists(listing: ListedImages) -> array.array:
    """Hashes of the paths in the lists of other splits, which are no strays."""
    hashes = array.array("Q")
    for name in paths.listing(listing.folder):
        path = paths.join(listing.folder, name)
        if not (name.startswith("label") and name.endswith(".txt")):
            continue
        if path != listing.name:
            # A list that is no list ends where it stops being one.
            with contextlib.suppress(ValueError):
                for entry in image_list.entries(path):
                    if not isinstance(entry, image_list.BadLine):
                        hashes.append(hash64(os.path.normpath(entry[1])))
    return hashes


def _check(place, root, files, known, findings) -> None:
    endings = tuple(ending.encode() for ending in paths.IMAGE_ENDINGS)
    names = sorted(name for name in files if name.lower().endswith(endings))
    if not names:
        return
    below = [os.path.relpath(os.path.join(place, name), root) for name in names]
    hashes = np.fromiter((hash64(path) for path in below), np.uint64, len(below))
    for row in np.flatnonzero(~np.isin(hashes, known)).tolist():
        path = os.path.join(root, below[row])
        findings.add(kinds.UNLISTED, path.decode(errors="replace"))
