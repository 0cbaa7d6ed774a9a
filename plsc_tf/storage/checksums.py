"""The checksums of files: of new ones, and of those that a manifest lists.

A file's entry in a manifest is `{"bytes": size, algorithm: digest in hex}`.
"""

import hashlib
from collections.abc import Mapping

from blake3 import blake3

# On processors without instructions for it, SHA-256 takes longer than the disk.
DEFAULT = "blake3"
ALGORITHMS = {"blake3": blake3, "sha256": hashlib.sha256}


def algorithm_of(entries: Mapping[str, Mapping]) -> str:
    """Returns the algorithm of a manifest's entries.

    Raises:
        KeyError: no entry has a known checksum.
        ValueError: there are checksums of several algorithms.
    """
    found = sorted(ALGORITHMS.keys() & set().union(*entries.values()))
    if len(found) > 1:
        raise ValueError(f"its files have checksums of several kinds, {found}")
    if not found:
        raise KeyError(f"files with one of {sorted(ALGORITHMS)}")
    return found[0]
