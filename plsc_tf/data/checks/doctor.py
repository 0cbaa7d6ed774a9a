"""The whole check of a data set, and its report."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from plsc_tf.data import load as data_load
from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.duplicates import VerificationImages, find_duplicates
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
from plsc_tf.data.checks.statistics import class_statistics, size_statistics
from plsc_tf.data.checks.survey import survey
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
        val_targets: verification sets that must not share images with the data set.
        near: whether similar images count, too.
        threads: that read and decode; 0: one per core.
    """

    val_targets: tuple[str, ...] = ()
    near: bool = False
    threads: int = 0


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes:
        listing: the images.
        table: of the survey.
        findings: all problems.
        report: plain values, for JSON.
    """

    listing: Listing
    table: np.ndarray
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
    on_progress=lambda count, share: None,
) -> CheckResult:
    """Checks a data set; problems with the data are findings, not errors.

    Args:
        name: of the data set, as for `load`.
        request: which examples; num_classes None takes it from the data.
        options: how to check.
        on_progress: called with images done and the share of the whole.

    Raises:
        FileNotFoundError: there is no data set, list, or verification set.
        ValueError: an unknown data set, or an impossible request.
    """
    options, start = options or CheckOptions(), time.monotonic()
    findings = Findings()
    # Before the long part: a missing set is a mistake of the call, not a finding.
    verification = _verification(name, request, options, findings)
    listing, known_classes = open_listing(name, request)
    num_classes = request.num_classes or known_classes
    table = survey(
        listing,
        findings,
        num_classes=num_classes,
        labels_offset=request.labels_offset,
        near=options.near and len(verification) > 0,
        threads=options.threads,
        on_progress=on_progress,
    )
    excess = (listing.num_classes or 0) - (num_classes or 2**63)
    if excess > 0 and isinstance(listing, FolderImages):
        detail = f"{listing.num_classes} class folders, num_classes={num_classes}"
        findings.add(kinds.TOO_MANY_CLASSES, listing.name, detail, excess)
    find_duplicates(table, listing, findings)
    verification.find_leaks(table, listing, findings, options.near)
    searched = None
    if isinstance(listing, ListedImages):
        searched = find_unlisted(listing, len(table), findings)
    classes = class_statistics(table, findings, num_classes or listing.num_classes)
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
        "looked_for_unlisted_files": searched,
        "findings": findings.as_list(),
        "seconds": round(time.monotonic() - start, 3),
    }
    return CheckResult(listing, table, findings, report)


def open_listing(name: str, request: DataRequest) -> tuple[Listing, int | None]:
    """Returns the images of a data set and the number of classes of its module."""
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
        # These know the number themselves, also after classes were left out.
        known = None
    elif request.split != "train" and not isinstance(listing, ArrayImages):
        known = None
    return listing, known


def _verification(name, request, options, findings) -> VerificationImages:
    """Examines the images of the verification sets."""
    images = VerificationImages()
    for target in options.val_targets:
        try:
            pairs = data_load.load_val(name, request, target)
        except ValueError as error:
            findings.add(kinds.VAL_DAMAGED, target, str(error))
            continue
        for number, content in enumerate(pairs.images):
            place = f"picture {number} of {target}"
            if pairs.files:
                place = pairs.files[number]
            image = examine(content, options.near)
            images.add(place, image)
            for kind, detail in image.faults:
                if kind.severity == kinds.ERROR:
                    text = f"{kind.text} ({detail})" if detail else kind.text
                    findings.add(kinds.VAL_DAMAGED, place, text)
    return images
