"""Checks a data set, including problems that concern several images or classes.

Every `table` in this module is the result of `survey`, with one row per image.
"""

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from plsc_tf.data import image_limit, load as data_load
from plsc_tf.data.checks.findings import ERROR, KINDS, WARNING, Findings
from plsc_tf.data.checks.listings import Item, Listing, open_listing
from plsc_tf.data.checks.survey import examine, survey
from plsc_tf.data.readers.layouts import DataRequest
from plsc_tf.requirements import require

_BAND_BITS = 16
# Two hashes that differ in fewer bits than this have at least one equal band.
_BANDS = 4
# Maximum number of labels listed in a finding.
_NAMED = 10


class CheckResult(NamedTuple):
    """The result of a check.

    Attributes:
        listing: the images.
        table: the survey's table.
        report: the report, as JSON-compatible values. Its "sound" is whether there are
            no errors; there may still be warnings.
    """

    listing: Listing
    table: np.ndarray
    report: dict


def check(
    name: str,
    request: DataRequest,
    *,
    val_targets: tuple[str, ...] = (),
    near: bool = False,
    max_megapixels: float = image_limit.MAX_MEGAPIXELS,
    judge: Callable[[np.ndarray], str] | None = None,
) -> CheckResult:
    """Checks a data set; problems with the data are reported as findings.

    Args:
        name: name of the data set, as for `load`.
        request: selects the examples.
        val_targets: verification sets that must not share images with the data set.
        near: whether to look for similar images as well.
        max_megapixels: largest image to decode, in megapixels.
        judge: see `examine`.

    Raises:
        FileNotFoundError: the data set, its list or a verification set does not exist.
        ValueError: the data set is unknown or empty, or the request is invalid.
    """
    start, findings = time.monotonic(), Findings()
    # Load these first: a missing set is an error in the call and should fail early.
    verification, near = [], near and bool(val_targets)
    look = functools.partial(examine, near=near, max_megapixels=max_megapixels)
    for target in val_targets:
        verification += _examine_set(name, request, target, look, findings)
    listing, look = open_listing(name, request), functools.partial(look, judge=judge)
    table = survey(listing, findings, look)
    require(len(table) or findings.total(ERROR), f"{listing.name} has no images")
    find_duplicates(table, listing, findings)
    find_leaks(table, verification, listing, findings)
    classes = class_figures(table, findings, listing.num_classes)
    report = {
        "data_set": name,
        "read": listing.name,
        "pictures": len(table),
        "sound": not findings.total(ERROR),
        "errors": findings.total(ERROR),
        "warnings": findings.total(WARNING),
        "classes": classes,
        "verification_pictures": len(verification),
        "findings": findings.as_list(),
        "seconds": round(time.monotonic() - start, 3),
    }
    return CheckResult(listing, table, report)


def _examine_set(name, request, target, look, findings):
    """Yields (place, examined `Item`) for each image of a verification set."""
    try:
        pairs = data_load.load_val(name, request, target)
    except ValueError as error:
        findings.add("val_damaged", target, str(error))
        return
    for number, content in enumerate(pairs.images):
        place = pairs.files[number] if pairs.files else f"image {number} of {target}"
        image = look(Item(content=content))
        yield place, image
        for kind, detail in image.faults:
            if KINDS[kind].severity == ERROR:
                text = f"{KINDS[kind].text} ({detail})" if detail else KINDS[kind].text
                findings.add("val_damaged", place, text)


def find_duplicates(table: np.ndarray, listing: Listing, findings: Findings) -> None:
    """Marks copies, and identical images with different labels.

    Images are identical if their decoded pixels are. If their labels differ, all of
    them are conflicts; otherwise, all but the first are copies.
    """
    known = np.flatnonzero(table["pixel_hash"])
    known = known[np.argsort(table["pixel_hash"][known], kind="stable")]
    hashes = table["pixel_hash"][known]
    for rows in np.split(known, np.flatnonzero(np.diff(hashes)) + 1):
        if len(rows) < 2:
            continue
        labels, (first, *others) = table["label"][rows], rows.tolist()
        if (labels != labels[0]).any():
            places = ", ".join(
                f"label {label} at {listing.describe(row)}"
                for row, label in zip(rows[:4].tolist(), labels, strict=False)
            )
            more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
            findings.add("conflicting_labels", places + more, count=len(rows))
            table["removed"][rows] = True
            continue
        files = {table["byte_hash"][first]}
        for row in others:
            digest = table["byte_hash"][row]
            kind = "same_bytes" if digest in files else "same_pixels"
            origin = f"same as {listing.describe(first)}"
            findings.add(kind, listing.describe(row), origin)
            files.add(digest)
        table["removed"][others] = True


def find_leaks(
    table: np.ndarray,
    verification: list[tuple[str, Item]],
    listing: Listing,
    findings: Findings,
) -> None:
    """Marks images that are identical or similar to a verification image.

    Images are similar if their difference hashes, when there are any, differ in fewer
    bits than there are bands.

    Args:
        table: the survey's table.
        verification: (place, examined `Item`) of each image of the verification sets.
        listing: the images of the data set.
        findings: findings to add to.
    """
    leaks = np.full(len(table), -1)
    for name in ("pixel_hash", "byte_hash"):
        number_of = {getattr(one, name): k for k, (_, one) in enumerate(verification)}
        number_of.pop(0, None)
        hashes = np.fromiter(number_of, np.uint64, len(number_of))
        for row in np.flatnonzero(np.isin(table[name], hashes) & (leaks < 0)).tolist():
            leaks[row] = number_of[int(table[name][row])]
    closest = _closest(table["near_hash"], [one.near_hash for _, one in verification])
    closest[leaks >= 0] = -1
    kinds = ("leak", leaks, "same as"), ("near_leak", closest, "similar to")
    for kind, numbers, how in kinds:
        for row in np.flatnonzero(numbers >= 0).tolist():
            place = verification[numbers[row]][0]
            findings.add(kind, listing.describe(row), f"{how} {place}")
            table["removed"][row] |= KINDS[kind].removed


def _closest(hashes: np.ndarray, wanted: list[int]) -> np.ndarray:
    """Returns, for each hash, the index of a similar hash in `wanted`, or -1."""
    closest = np.full(len(hashes), -1)
    # Many images may have the same hash.
    distinct = {digest: number for number, digest in enumerate(wanted) if digest}
    for band in range(_BANDS):
        keys = (hashes >> np.uint64(band * _BAND_BITS)).astype(np.uint16)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        for digest, number in distinct.items():
            key = np.uint16((digest >> band * _BAND_BITS) & 0xFFFF)
            low, high = (np.searchsorted(ordered, key, s) for s in ("left", "right"))
            rows = order[low:high]
            bits = np.ascontiguousarray(hashes[rows] ^ np.uint64(digest)).view(np.uint8)
            distances = np.unpackbits(bits.reshape(-1, 8), axis=1).sum(1)
            closest[rows[(distances < _BANDS) & (hashes[rows] != 0)]] = number
    return closest


def class_figures(
    table: np.ndarray, findings: Findings, num_classes: int | None
) -> dict:
    """Computes statistics of the classes, ignoring labels out of range.

    Args:
        table: the survey's table.
        findings: findings to which to add empty classes and classes of one image.
        num_classes: number of classes; None means the largest label + 1.

    Returns:
        JSON-compatible values for the report; {} if no label could be read.
    """
    labels = table["label"]
    known = (labels >= 0) & (labels < (num_classes or 2**63 - 1))
    labels, counts = np.unique(labels[known], return_counts=True)
    if not len(labels):
        return {}
    num_classes = num_classes or int(labels[-1]) + 1
    # The first `_NAMED` empty classes have labels below this bound.
    first = np.arange(min(num_classes, len(labels) + _NAMED))
    empty, single = num_classes - len(labels), labels[counts == 1]
    for kind, few, count in (
        ("empty_classes", np.setdiff1d(first, labels), empty),
        ("single_picture_classes", single, len(single)),
    ):
        if count:
            more = " ..." if count > _NAMED else ""
            text = f"labels {', '.join(map(str, few[:_NAMED]))}{more}"
            findings.add(kind, text, count=count)
    # Histogram of images per class, with bins that are powers of two.
    by_power = np.bincount(np.log2(counts).astype(np.int64)).tolist()
    names = ["1"] + [f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, len(by_power))]
    return {
        "num_classes": num_classes,
        "empty": empty,
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "max": int(counts.max()),
        "histogram": dict(zip(names, by_power, strict=True)),
    }
