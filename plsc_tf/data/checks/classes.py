"""Pictures per class, classes without any, and the sizes of the pictures."""

from __future__ import annotations

import numpy as np

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.survey import NO_LABEL, Table


def class_statistics(table: Table, findings: Findings, num_classes: int | None) -> dict:
    """Counts the pictures of each class; labels out of range belong to none.

    Args:
        table: of the survey.
        findings: gets empty classes and those of one picture.
        num_classes: number of classes; None: largest label + 1.

    Returns:
        for the report; {} when no label could be read.
    """
    labels = table.labels
    limit = num_classes or 2**63 - 1
    labels, counts = np.unique(
        labels[(labels >= 0) & (labels < limit) & (labels != NO_LABEL)],
        return_counts=True,
    )
    if not len(labels):
        return {}
    num_classes = num_classes or int(labels[-1]) + 1
    empty = num_classes - len(labels)
    if empty:
        gaps = ", ".join(map(str, _gaps(labels, num_classes, 10)))
        more = " ..." if empty > 10 else ""
        findings.add(kinds.EMPTY_CLASSES, f"labels {gaps}{more}", count=empty)
    single = labels[counts == 1]
    if len(single):
        some = ", ".join(map(str, single[:10])) + (" ..." if len(single) > 10 else "")
        findings.add(kinds.SINGLE_CLASSES, f"labels {some}", count=len(single))
    return {
        "num_classes": num_classes,
        "empty": empty,
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "max": int(counts.max()),
        "histogram": _histogram(counts),
    }


def _gaps(labels: np.ndarray, num_classes: int, most: int) -> list[int]:
    """The first labels in 0 ... num_classes - 1 that do not come."""
    ends = np.append(labels, num_classes)
    begins = np.concatenate([[0], labels + 1])
    gaps = []
    for row in np.flatnonzero(begins < ends):
        gaps.extend(
            range(int(begins[row]), min(int(ends[row]), int(begins[row]) + most))
        )
        if len(gaps) >= most:
            break
    return gaps[:most]


def _histogram(counts: np.ndarray) -> dict[str, int]:
    """Number of classes by pictures per class, in powers of two."""
    powers = np.floor(np.log2(counts)).astype(np.int64)
    result = {}
    for power in range(int(powers.max()) + 1):
        low, high = 2**power, 2 ** (power + 1) - 1
        name = str(low) if low == high else f"{low}-{high}"
        result[name] = int((powers == power).sum())
    return result


def size_statistics(table: Table) -> dict:
    """Smallest, median and largest height, width and file, and the commonest sizes."""
    known = np.flatnonzero(table.heights)
    if not len(known):
        return {}
    heights, widths = table.heights[known], table.widths[known]
    packed = heights.astype(np.uint64) << np.uint64(32) | widths
    sizes, counts = np.unique(packed, return_counts=True)
    common = np.argsort(-counts, kind="stable")[:5]
    return {
        "height": _spread(heights),
        "width": _spread(widths),
        "bytes": _spread(table.bytes[known]),
        "common": [
            {
                "height": int(sizes[k] >> np.uint64(32)),
                "width": int(sizes[k] & np.uint64(2**32 - 1)),
                "pictures": int(counts[k]),
            }
            for k in common
        ],
        "different": len(sizes),
    }


def _spread(values: np.ndarray) -> dict:
    return {
        "min": int(values.min()),
        "median": float(np.median(values)),
        "max": int(values.max()),
    }
