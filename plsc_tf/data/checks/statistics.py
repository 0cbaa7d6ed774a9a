"""Images per class, classes without any, and the sizes of the images."""

from __future__ import annotations

import numpy as np

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.survey import NO_LABEL

_LISTED = 10
_COMMON = 5


def class_statistics(
    table: np.ndarray, findings: Findings, num_classes: int | None
) -> dict:
    """Counts the images of each class; labels out of range belong to none.

    Args:
        table: of the survey.
        findings: gets empty classes and those of one image.
        num_classes: number of classes; None: largest label + 1.

    Returns:
        plain values for the report; {} if no label could be read.
    """
    labels = table["label"]
    in_range = (labels >= 0) & (labels < (num_classes or 2**63 - 1))
    labels, counts = np.unique(
        labels[in_range & (labels != NO_LABEL)], return_counts=True
    )
    if not len(labels):
        return {}
    num_classes = num_classes or int(labels[-1]) + 1
    empty = num_classes - len(labels)
    # The first gaps lie within as many labels as there are, and these gaps.
    first = np.arange(min(num_classes, len(labels) + _LISTED))
    _add(findings, kinds.EMPTY_CLASSES, np.setdiff1d(first, labels), empty)
    single = labels[counts == 1]
    _add(findings, kinds.SINGLE_CLASSES, single, len(single))
    return {
        "num_classes": num_classes,
        "empty": empty,
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "max": int(counts.max()),
        "histogram": _histogram(counts),
    }


def size_statistics(table: np.ndarray) -> dict:
    """Returns figures about heights, widths and bytes, and the commonest sizes."""
    table = table[table["height"] > 0]
    if not len(table):
        return {}
    pairs = table["height"].astype(np.uint64) << np.uint64(32) | table["width"]
    sizes, counts = np.unique(pairs, return_counts=True)
    common = np.argsort(-counts, kind="stable")[:_COMMON]
    return {
        **{name: _spread(table[name]) for name in ("height", "width", "bytes")},
        "common": [
            {
                "height": int(sizes[k]) >> 32,
                "width": int(sizes[k]) & (2**32 - 1),
                "pictures": int(counts[k]),
            }
            for k in common
        ],
        "different": len(sizes),
    }


def _add(findings, kind, labels, count):
    if count:
        more = " ..." if count > _LISTED else ""
        text = f"labels {', '.join(map(str, labels[:_LISTED]))}{more}"
        findings.add(kind, text, count=count)


def _histogram(counts: np.ndarray) -> dict[str, int]:
    """Number of classes by images per class, in powers of two."""
    by_power = np.bincount(np.log2(counts).astype(np.int64)).tolist()
    names = ["1"] + [f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, len(by_power))]
    return dict(zip(names, by_power, strict=True))


def _spread(values: np.ndarray) -> dict:
    return {
        "min": int(values.min()),
        "median": float(np.median(values)),
        "max": int(values.max()),
    }
