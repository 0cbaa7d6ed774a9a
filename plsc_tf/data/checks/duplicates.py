"""Images that occur more than once: in the data set, or in verification sets, too."""

from __future__ import annotations

import functools

import numpy as np

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.examine import Examined
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listing import Listing

_BAND_BITS = 16
# Two hashes that differ in fewer bits than there are bands share a band.
_BANDS = 4
NEAR_BITS = _BANDS - 1


def find_duplicates(table: np.ndarray, listing: Listing, findings: Findings) -> None:
    """Marks copies, and the same image under different labels.

    A group of equal images is decided by their decoded pixels. All of a group with
    different labels are conflicts; of the others all but the first are copies.
    """
    known = np.flatnonzero(table["pixel_hash"])
    known = known[np.argsort(table["pixel_hash"][known], kind="stable")]
    hashes = table["pixel_hash"][known]
    for rows in np.split(known, np.flatnonzero(np.diff(hashes)) + 1):
        if len(rows) < 2:
            continue
        labels = table["label"][rows]
        if (labels != labels[0]).any():
            places = ", ".join(
                f"label {label} at {listing.describe(int(row))}"
                for row, label in zip(rows[:4], labels[:4], strict=True)
            )
            more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
            findings.add(kinds.CONFLICT, places + more, count=len(rows))
            table["removed"][rows] = True
        else:
            _add_copies(table, rows.tolist(), listing, findings)


def _add_copies(table, rows, listing, findings):
    first, *others = rows
    files = {table["byte_hash"][first]}
    for row in others:
        digest = table["byte_hash"][row]
        kind = kinds.SAME_BYTES if digest in files else kinds.SAME_PIXELS
        files.add(digest)
        place = functools.partial(listing.describe, row)
        findings.add(kind, place, f"as {listing.describe(first)}")
        table["removed"][row] = True


class VerificationImages:
    """Fingerprints of the images of verification sets."""

    def __init__(self):
        self._places: list[str] = []
        self._images: list[Examined] = []

    def add(self, place: str, image: Examined) -> None:
        """Adds an examined image."""
        self._places.append(place)
        self._images.append(image)

    def __len__(self) -> int:
        return len(self._places)

    def find_leaks(
        self, table: np.ndarray, listing: Listing, findings: Findings, near: bool
    ) -> None:
        """Marks images of the data set that equal, or resemble, one of these.

        Args:
            table: of the survey.
            listing: of the data set.
            findings: gets the images.
            near: whether to look for similar ones: those whose difference hash is
                within NEAR_BITS.
        """
        leaks = np.full(len(table), -1)
        for hash_name in ("pixel_hash", "byte_hash"):
            self._match(table[hash_name], hash_name, leaks)
        self._add(leaks, kinds.LEAK, table, listing, findings)
        if near:
            closest = np.where(leaks < 0, self._closest(table["near_hash"]), -1)
            self._add(closest, kinds.NEAR_LEAK, table, listing, findings)

    def _match(self, hashes, hash_name, leaks):
        """Puts the number of an image with the same hash where there is none yet."""
        number_of = {getattr(one, hash_name): k for k, one in enumerate(self._images)}
        number_of.pop(0, None)
        wanted = np.fromiter(number_of, np.uint64, len(number_of))
        for row in np.flatnonzero(np.isin(hashes, wanted) & (leaks < 0)).tolist():
            leaks[row] = number_of[int(hashes[row])]

    def _closest(self, hashes):
        """Returns the number of a similar image for each difference hash, or -1."""
        closest = np.full(len(hashes), -1)
        for band in range(_BANDS):
            keys = (hashes >> np.uint64(band * _BAND_BITS)).astype(np.uint16)
            order = np.argsort(keys, kind="stable")
            ordered = keys[order]
            for number, image in enumerate(self._images):
                digest = np.uint64(image.near_hash)
                key = np.uint16((image.near_hash >> band * _BAND_BITS) & 0xFFFF)
                low = np.searchsorted(ordered, key, "left")
                rows = order[low : np.searchsorted(ordered, key, "right")]
                different = np.ascontiguousarray(hashes[rows] ^ digest).view(np.uint8)
                distances = np.unpackbits(different.reshape(-1, 8), axis=1).sum(1)
                similar = (distances <= NEAR_BITS) & (hashes[rows] != 0)
                if image.near_hash:
                    closest[rows[similar]] = number
        return closest

    def _add(self, numbers, kind, table, listing, findings):
        for row in np.flatnonzero(numbers >= 0).tolist():
            place = functools.partial(listing.describe, row)
            findings.add(kind, place, f"is {self._places[numbers[row]]}")
            if kind.removed:
                table["removed"][row] = True
