"""Pictures that come more than once, in the set itself or in verification sets too."""

from __future__ import annotations

import functools

import numpy as np

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listing import Listing
from plsc_tf.data.checks.survey import Table

_BAND_BITS = 16
# Two hashes that differ in fewer bits than there are bands share a band.
_BANDS = 4
NEAR_BITS = _BANDS - 1


def find_duplicates(table: Table, listing: Listing, findings: Findings) -> None:
    """Marks copies, and the same picture under different labels.

    A group of equal pictures is decided by their decoded pixels. All of a group with
    different labels are conflicts; of the others all but the first are copies.
    """
    known = np.flatnonzero(table.pixel_hashes)
    hashes, labels = table.pixel_hashes[known], table.labels[known]
    order = np.argsort(hashes, kind="stable")
    hashes, labels, known = hashes[order], labels[order], known[order]
    starts = np.flatnonzero(np.diff(hashes, prepend=hashes[:1] ^ np.uint64(1)))
    sizes = np.diff(starts, append=len(hashes))
    for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
        rows = known[start : start + size]
        group = labels[start : start + size]
        if (group != group[0]).any():
            _conflict(table, rows, group, listing, findings)
        else:
            _copies(table, rows, listing, findings)


def _conflict(table, rows, labels, listing, findings) -> None:
    places = ", ".join(
        f"label {label} at {listing.describe(int(row))}"
        for row, label in zip(rows[:4], labels[:4], strict=True)
    )
    more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    findings.add(kinds.CONFLICT, places + more, count=len(rows))
    _mark(table, rows, kinds.CONFLICT)


def _copies(table, rows, listing, findings) -> None:
    first = int(rows[0])
    seen = {int(table.byte_hashes[first])}
    for row in rows[1:].tolist():
        digest = int(table.byte_hashes[row])
        kind = kinds.SAME_BYTES if digest in seen else kinds.SAME_PIXELS
        seen.add(digest)
        findings.add(
            kind,
            functools.partial(listing.describe, row),
            f"as {listing.describe(first)}",
        )
        _mark(table, row, kind)


def _mark(table: Table, rows, kind: kinds.Kind) -> None:
    table.flags[rows] |= np.uint64(kinds.BIT[kind])


class VerificationPictures:
    """Fingerprints of the pictures of verification sets."""

    def __init__(self):
        self.places: list[str] = []
        self._bytes, self._pixels, self._near = [], [], []

    def add(self, place: str, found) -> None:
        """Adds an examined picture."""
        self.places.append(place)
        self._bytes.append(found.byte_hash)
        self._pixels.append(found.pixel_hash)
        self._near.append(found.near_hash)

    def __len__(self) -> int:
        return len(self.places)

    def find_leaks(self, table: Table, listing: Listing, findings: Findings) -> None:
        """Marks pictures of the set that have the bytes or pixels of one of these."""
        for hashes, column in (
            (self._pixels, table.pixel_hashes),
            (self._bytes, table.byte_hashes),
        ):
            place_of = {digest: k for k, digest in enumerate(hashes) if digest}
            wanted = np.fromiter(place_of, np.uint64, len(place_of))
            unmarked = (table.flags & np.uint64(kinds.BIT[kinds.LEAK])) == 0
            for row in np.flatnonzero(np.isin(column, wanted) & unmarked).tolist():
                place = self.places[place_of[int(column[row])]]
                self._found(kinds.LEAK, table, row, place, listing, findings)

    def find_near_leaks(
        self, table: Table, listing: Listing, findings: Findings
    ) -> None:
        """Marks pictures whose difference hash is within NEAR_BITS of one of these."""
        near = table.near_hashes
        closest = np.full(len(near), -1, np.int64)
        for band in range(_BANDS):
            shift = np.uint64(band * _BAND_BITS)
            mask = np.uint64(2**_BAND_BITS - 1)
            keys = (near >> shift) & mask
            order = np.argsort(keys, kind="stable")
            ordered = keys[order]
            for k, digest in enumerate(self._near):
                if not digest:
                    continue
                key = (np.uint64(digest) >> shift) & mask
                low, high = np.searchsorted(ordered, [key, key + np.uint64(1)])
                rows = order[low:high]
                rows = rows[near[rows] != 0]
                closest[rows[_distance(near[rows], digest) <= NEAR_BITS]] = k
        leak = np.uint64(kinds.BIT[kinds.LEAK])
        for row in np.flatnonzero((closest >= 0) & (table.flags & leak == 0)).tolist():
            place = self.places[closest[row]]
            self._found(kinds.NEAR_LEAK, table, row, place, listing, findings)

    def _found(self, kind, table, row, place, listing, findings) -> None:
        findings.add(kind, functools.partial(listing.describe, row), f"is {place}")
        _mark(table, row, kind)


def _distance(hashes: np.ndarray, other: int) -> np.ndarray:
    """Number of bits in which hashes differ from another one."""
    different = (hashes ^ np.uint64(other)).view(np.uint16)
    return _ones()[different].reshape(-1, 4).sum(1)


@functools.cache
def _ones() -> np.ndarray:
    """Number of bits that are set in each number of 16 bits."""
    numbers = np.arange(2**16, dtype=">u2").view(np.uint8)
    return np.unpackbits(numbers).reshape(-1, 16).sum(1, dtype=np.uint8)
