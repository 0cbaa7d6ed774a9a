"""The whole check of a data set."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from plsc_tf.data import load as data_load
from plsc_tf.data.checks.findings import ERROR, KINDS, WARNING, Findings
from plsc_tf.data.checks.listings import ListedImages, Listing, open_listing
from plsc_tf.data.checks.survey import examine, survey
from plsc_tf.data.checks.whole_set import (
    class_figures,
    find_duplicates,
    find_leaks,
    find_unlisted,
)
from plsc_tf.data.request import DataRequest


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes:
        listing: the images.
        table: of the survey.
        report: plain values, for JSON.
    """

    listing: Listing
    table: np.ndarray
    report: dict

    @property
    def sound(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return self.report["sound"]


def check(
    name: str,
    request: DataRequest,
    *,
    val_targets: tuple[str, ...] = (),
    near: bool = False,
    threads: int = 0,
    on_progress=lambda count, share: None,
) -> CheckResult:
    """Checks a data set; problems with the data are findings, not errors.

    Args:
        name: of the data set, as for `load`.
        request: which examples; num_classes None takes it from the data.
        val_targets: verification sets that must not share images with the data set.
        near: whether similar images count, too.
        threads: that read and decode; 0: one per core.
        on_progress: called with images done and the share of the whole.

    Raises:
        FileNotFoundError: there is no data set, list, or verification set.
        ValueError: an unknown data set, or an impossible request.
    """
    start, findings = time.monotonic(), Findings()
    # Before the long part: a missing set is a mistake of the call, not a finding.
    verification = []
    for target in val_targets:
        verification += _examine_set(name, request, target, near, findings)
    listing = open_listing(name, request)
    near = near and bool(verification)
    table = survey(
        listing, findings, near=near, threads=threads, on_progress=on_progress
    )
    find_duplicates(table, listing, findings)
    find_leaks(table, verification, listing, findings, near)
    searched = None
    if isinstance(listing, ListedImages):
        searched = find_unlisted(listing, len(table), findings)
    classes = class_figures(table, findings, listing.num_classes)
    errors = findings.total(ERROR)
    report = {
        "data_set": name,
        "read": listing.name,
        "pictures": len(table),
        "sound": not errors,
        "errors": errors,
        "warnings": findings.total(WARNING),
        "classes": classes,
        "verification_pictures": len(verification),
        "looked_for_unlisted_files": searched,
        "findings": findings.as_list(),
        "seconds": round(time.monotonic() - start, 3),
    }
    return CheckResult(listing, table, report)


def _examine_set(name, request, target, near, findings):
    """Yields (place, `Examined`) of the images of a verification set."""
    try:
        pairs = data_load.load_val(name, request, target)
    except ValueError as error:
        findings.add("val_damaged", target, str(error))
        return
    for number, content in enumerate(pairs.images):
        place = pairs.files[number] if pairs.files else f"image {number} of {target}"
        image = examine(content, near)
        yield place, image
        for kind, detail in image.faults:
            if KINDS[kind].severity == ERROR:
                text = f"{KINDS[kind].text} ({detail})" if detail else KINDS[kind].text
                findings.add("val_damaged", place, text)
