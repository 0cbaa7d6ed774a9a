"""The whole check of a data set, and its report."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from plsc_tf.data import load as data_load
from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.classes import class_statistics, size_statistics
from plsc_tf.data.checks.duplicates import VerificationPictures, find_duplicates
from plsc_tf.data.checks.examine import examine
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listing import (
    ArrayImages,
    FolderImages,
    ListedImages,
    Listing,
    SourceImages,
)
from plsc_tf.data.checks.packed import Base64Images, RecordioImages, TfrecordImages
from plsc_tf.data.checks.survey import Table, survey
from plsc_tf.data.checks.unlisted import find_unlisted
from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DataRequest

_LISTINGS = {
    layouts.ImageListLayout: ListedImages,
    layouts.ClassFoldersLayout: FolderImages,
    layouts.ArraysLayout: ArrayImages,
    layouts.TfrecordLayout: TfrecordImages,
    layouts.Base64Layout: Base64Images,
    layouts.RecordioLayout: RecordioImages,
}


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """How to check.

    Args:
        val_targets: verification sets that must not share pictures with the set.
        near: whether to look for similar pictures in them, too.
        threads: that read and decode; 0: one per core.
    """

    val_targets: tuple[str, ...] = ()
    near: bool = False
    threads: int = 0


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Attributes:
        listing: the pictures.
        table: of the survey.
        findings: all that is wrong.
        report: plain values, for JSON.
    """

    listing: Listing
    table: Table
    findings: Findings
    report: dict

    @property
    def sound(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return not self.findings.total(kinds.ERROR)


def check(
    name: str,
    request: DataRequest,
    options: CheckOptions | None = None,
    on_progress=lambda count, fraction: None,
) -> CheckResult:
    """Checks a data set and goes on after whatever is wrong with it.

    Args:
        name: of the data set, as for `load`.
        request: which examples; num_classes None takes it from the data.
        options: how to check.
        on_progress: called with pictures done and the share of the whole.

    Raises:
        FileNotFoundError: there is no data set, list, or verification set.
        ValueError: an unknown data set, a request that makes no sense.
    """
    options, start = options or CheckOptions(), time.monotonic()
    findings = Findings()
    # Before the long part: a set that is not there is no finding, but a mistake.
    verification = _verification(name, request, options, findings)
    listing, known_classes = open_listing(name, request)
    asked = request.num_classes or known_classes
    table = survey(
        listing,
        findings,
        num_classes=asked,
        labels_offset=request.labels_offset,
        near=options.near and len(verification) > 0,
        threads=options.threads,
        on_progress=on_progress,
    )
    _check_number_of_classes(listing, asked, findings)
    find_duplicates(table, listing, findings)
    verification.find_leaks(table, listing, findings)
    if options.near:
        verification.find_near_leaks(table, listing, findings)
    looked = None
    if isinstance(listing, ListedImages):
        looked = find_unlisted(listing, len(table), findings)
    classes = class_statistics(table, findings, asked or listing.num_classes)
    report = {
        "data_set": name,
        "read": listing.name,
        "pictures": len(table),
        "sound": not findings.total(kinds.ERROR),
        "errors": findings.total(kinds.ERROR),
        "warnings": findings.total(kinds.WARNING),
        "classes": classes,
        "sizes": size_statistics(table),
        "verification_pictures": len(verification),
        "looked_for_unlisted_files": looked,
        "findings": _findings(findings),
        "seconds": round(time.monotonic() - start, 3),
    }
    return CheckResult(listing, table, findings, report)


def open_listing(name: str, request: DataRequest) -> tuple[Listing, int | None]:
    """Returns the pictures of a data set and the number of classes its module says."""
    module = data_load.find(name)
    layout = data_load.find_layout(name, request)
    if type(layout) in _LISTINGS:
        listing = _LISTINGS[type(layout)](layout)
        listing.heeds = layout.heeds
    else:
        source = layout.open()
        listing = SourceImages(source)
        listing.heeds = source.heeds
    known = data_load.info(module).num_classes
    if isinstance(listing, FolderImages | RecordioImages | SourceImages):
        # They say themselves how many there are, after classes were left out, too.
        known = None
    elif request.split != "train" and not isinstance(listing, ArrayImages):
        known = None
    return listing, known


def removed(table: Table) -> np.ndarray:
    """Which pictures a cleaned list leaves out, bool [n]."""
    return (table.flags & np.uint64(kinds.REMOVED)) != 0


def _verification(name, request, options, findings) -> VerificationPictures:
    """Examines the pictures of the verification sets."""
    pictures = VerificationPictures()
    for target in options.val_targets:
        try:
            pairs = data_load.load_val(name, request, target)
        except ValueError as error:
            findings.add(kinds.VAL_DAMAGED, target, str(error))
            continue
        for number, image in enumerate(pairs.images):
            where = f"picture {number} of {target}"
            if pairs.files:
                where = pairs.files[number]
            found = examine(image, options.near)
            pictures.add(where, found)
            for kind, detail in found.faults:
                if kind.severity == kinds.ERROR:
                    text = f"{kind.text} ({detail})" if detail else kind.text
                    findings.add(kinds.VAL_DAMAGED, where, text)
    return pictures


def _check_number_of_classes(listing, asked, findings) -> None:
    found = listing.num_classes
    if asked and found and found > asked and isinstance(listing, FolderImages):
        findings.add(
            kinds.TOO_MANY_CLASSES,
            listing.name,
            f"{found} class folders, num_classes={asked}",
            found - asked,
        )


def _findings(findings) -> list[dict]:
    return [
        {
            "kind": kind.name,
            "severity": kind.severity,
            "text": kind.text,
            "count": findings.counts[kind],
            "first": [dataclasses.asdict(found) for found in findings.first(kind)],
        }
        for kind in kinds.KINDS
        if findings.counts[kind]
    ]
