"""Images next to the listed ones that are in no line of any list."""

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
    """Searches the folders of the listed images for further ones.

    Paths are compared as 64 bits each, so that millions fit.

    Args:
        listing: that was read.
        count: number of its items.
        findings: gets the images.

    Returns:
        False on remote file systems, where a search could take hours.
    """
    if "://" in listing.folder:
        return False
    hashes, tops = _paths_of_other_lists(listing), set()
    for index in range(count):
        path = os.path.normpath(listing.path(index))
        hashes.append(hash64(path))
        tops.add(path.split(b"/", 1)[0] if b"/" in path else b"")
    known = np.sort(np.array(hashes, np.uint64))
    root = os.fsencode(listing.folder.rstrip("/") or "/")
    endings = tuple(ending.encode() for ending in paths.IMAGE_ENDINGS)
    for top in sorted(tops):
        for place, folders, files in os.walk(os.path.join(root, top)):
            if not top:
                # The data root itself holds images: its folders may be others'.
                folders.clear()
            images = sorted(name for name in files if name.lower().endswith(endings))
            found = [os.path.join(place, name) for name in images]
            relative = [hash64(os.path.relpath(path, root)) for path in found]
            strays = ~np.isin(np.array(relative, np.uint64), known)
            for row in np.flatnonzero(strays).tolist():
                findings.add(kinds.UNLISTED, found[row].decode(errors="replace"))
    return True


def _paths_of_other_lists(listing: ListedImages) -> array.array:
    """Hashes of the paths in the lists of other splits."""
    hashes = array.array("Q")
    for name in paths.listing(listing.folder):
        path = paths.join(listing.folder, name)
        is_list = name.startswith("label") and name.endswith(".txt")
        if is_list and path != listing.name:
            # Another kind of file ends where it stops being a list.
            with contextlib.suppress(ValueError):
                for entry in image_list.entries(path):
                    if not isinstance(entry, image_list.BadLine):
                        hashes.append(hash64(os.path.normpath(entry[1])))
    return hashes
