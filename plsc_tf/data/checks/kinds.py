"""What can be wrong with a data set, and how bad it is.

An error would make a training fail or learn something wrong; a warning is worth a look.
"""

from __future__ import annotations

import dataclasses

ERROR, WARNING = "error", "warning"


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of finding.

    Attributes:
        name: in the report.
        severity: ERROR or WARNING.
        text: what it is, in the table.
        removed: whether a cleaned list leaves the picture out.
    """

    name: str
    severity: str
    text: str
    removed: bool


def _error(name: str, text: str, removed: bool = True) -> Kind:
    return Kind(name, ERROR, text, removed)


def _warning(name: str, text: str, removed: bool = False) -> Kind:
    return Kind(name, WARNING, text, removed)


BAD_LINE = _error("bad_line", "lines that are no image and label")
LABEL_NOT_WHOLE = _error("label_not_whole", "labels that are no whole number")
LABEL_OUT_OF_RANGE = _error(
    "label_out_of_range", "labels outside 0 ... num_classes - 1"
)
MISSING_FILE = _error("missing_file", "listed files that are not there")
UNREADABLE = _error("unreadable", "files that cannot be read")
DAMAGED_RECORD = _error("damaged_record", "damaged places in record files")
MISSING_RECORDS = _error("missing_records", "records that should be there", False)
EMPTY = _error("empty", "pictures of no bytes")
NOT_AN_IMAGE = _error("not_an_image", "files that are no picture")
UNSUPPORTED = _error(
    "unsupported_format", "pictures of a format that training does not decode"
)
DAMAGED = _error("damaged_image", "pictures that are cut off or damaged")
TOO_LARGE = _error("too_large", "pictures of more pixels than Pillow's limit")
CONFLICT = _error("conflicting_labels", "the same picture with different labels")
LEAK = _error("leak", "pictures that are in a verification set too")
VAL_DAMAGED = _error("val_damaged", "verification sets or pictures not read", False)
TOO_MANY_CLASSES = _error("too_many_classes", "classes beyond num_classes", False)

SAME_BYTES = _warning("same_bytes", "copies of another file, byte by byte", True)
SAME_PIXELS = _warning("same_pixels", "the pixels of another picture", True)
NEAR_LEAK = _warning("near_leak", "pictures much like one of a verification set")
CMYK = _warning("cmyk", "CMYK pictures; training converts them to RGB")
GREY = _warning("grey", "grey pictures; training repeats the channel")
ALPHA = _warning("alpha", "transparent pictures; training drops the alpha channel")
SIXTEEN_BIT = _warning("sixteen_bit", "16-bit pictures; training takes 8 bits")
ANIMATED = _warning("animated", "animations; training takes the first picture")
ROTATED = _warning("rotated", "pictures turned by EXIF, which training ignores")
BLANK = _warning("blank", "pictures of a single colour")
EMPTY_CLASSES = _warning("empty_classes", "classes without a picture")
SINGLE_CLASSES = _warning("single_picture_classes", "classes of one picture")
UNLISTED = _warning("unlisted_file", "pictures in the folder that are not listed")
NOT_READ = _warning("file_not_read", "files in class folders that are no pictures")
LOOSE = _warning("outside_classes", "pictures outside of any class folder")

KINDS = tuple(value for value in list(globals().values()) if isinstance(value, Kind))
# One bit of a picture's flags for each kind.
BIT = {kind: 1 << number for number, kind in enumerate(KINDS)}
REMOVED = sum(BIT[kind] for kind in KINDS if kind.removed)
