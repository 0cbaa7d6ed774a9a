"""The kinds of problems that a data set can have, and the findings of a check."""

import collections
from typing import NamedTuple

# Errors make a training run fail or learn the wrong thing; warnings may be harmless.
ERROR, WARNING = "error", "warning"
# Maximum number of findings of each kind that are stored with place and detail.
_STORED = 1000


class Kind(NamedTuple):
    """One kind of finding.

    Attributes:
        text: explanation for the table.
        severity: ERROR or WARNING.
        removed: whether a cleaned list omits the image.
    """

    text: str
    severity: str = ERROR
    removed: bool = True


def _warning(text: str) -> Kind:
    return Kind(text, WARNING, removed=False)


KINDS = {
    "bad_line": Kind("lines that are not an image and a label"),
    "label_not_whole": Kind("labels that are not whole numbers"),
    "label_out_of_range": Kind("labels outside 0 ... num_classes - 1"),
    "missing_file": Kind("listed files that do not exist"),
    "unreadable": Kind("files that cannot be read"),
    "damaged_record": Kind("damaged places in record files"),
    "wrong_index": Kind("indexes that differ from their record files", removed=False),
    "empty": Kind("empty images"),
    "not_an_image": Kind("files that are not images"),
    "unsupported_format": Kind("images of a format that training does not decode"),
    "damaged_image": Kind("images that are cut off or damaged"),
    "too_large": Kind("images of more than max_megapixels"),
    "conflicting_labels": Kind("images that occur with different labels"),
    "leak": Kind("images that are also in a verification set"),
    "val_damaged": Kind("verification data that cannot be read", removed=False),
    "same_bytes": Kind("files with the same bytes as another file", WARNING),
    "same_pixels": Kind("images with the same pixels as another image", WARNING),
    "low_quality": Kind("images of lower quality than min_quality", WARNING),
    "near_leak": _warning("images similar to a verification image"),
    "cmyk": _warning("CMYK images; training converts them to RGB"),
    "grey": _warning("grayscale images; training repeats the channel"),
    "alpha": _warning("transparent images; training drops the alpha channel"),
    "sixteen_bit": _warning("16-bit images; training uses 8 bits"),
    "animated": _warning("animated images; training uses the first frame"),
    "rotated": _warning("images rotated by EXIF, which training ignores"),
    "blank": _warning("images of a single color"),
    "empty_classes": _warning("classes without images"),
    "single_picture_classes": _warning("classes with only one image"),
    "file_not_read": _warning("files in class folders that are not images"),
    "outside_classes": _warning("images outside the class folders"),
}


class Findings:
    """Counts findings by kind and stores the details of the first ones."""

    def __init__(self):
        self._counts = collections.Counter()
        self._first = collections.defaultdict(list)

    def add(self, kind: str, where: str = "", detail: str = "", count: int = 1) -> None:
        """Adds a finding.

        Args:
            kind: a key of `KINDS`.
            where: the file, line or record.
            detail: more text.
            count: number of images or files that the finding represents.
        """
        self._counts[kind] += count
        if len(self._first[kind]) < _STORED:
            self._first[kind].append({"where": where, "detail": detail})

    def total(self, severity: str) -> int:
        """Returns the number of findings with the given severity."""
        counts = self._counts.items()
        return sum(n for kind, n in counts if KINDS[kind].severity == severity)

    def as_list(self) -> list[dict]:
        """Returns the findings as JSON-compatible values, errors first."""
        found = []
        for name, kind in KINDS.items():
            if count := self._counts[name]:
                values = {"kind": name, "severity": kind.severity, "text": kind.text}
                found.append({**values, "count": count, "first": self._first[name]})
        return found
