"""The possible problems of a data set, and their severity.

Errors make a training fail or learn wrong things; warnings are worth a look.
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
        text: explanation in the table.
        removed: whether a cleaned list leaves the image out.
    """

    name: str
    severity: str
    text: str
    removed: bool


def _error(name: str, text: str, removed: bool = True) -> Kind:
    return Kind(name, ERROR, text, removed)


def _warning(name: str, text: str, removed: bool = False) -> Kind:
    return Kind(name, WARNING, text, removed)


BAD_LINE = _error("bad_line", "lines other than image and label")
LABEL_NOT_WHOLE = _error("label_not_whole", "labels that are not whole numbers")
LABEL_OUT_OF_RANGE = _error(
    "label_out_of_range", "labels outside 0 ... num_classes - 1"
)
MISSING_FILE = _error("missing_file", "listed files that do not exist")
UNREADABLE = _error("unreadable", "files that cannot be read")
DAMAGED_RECORD = _error("damaged_record", "damaged places in record files")
MISSING_RECORDS = _error("missing_records", "records that are missing", False)
EMPTY = _error("empty", "empty images")
NOT_AN_IMAGE = _error("not_an_image", "files that are not images")
UNSUPPORTED = _error(
    "unsupported_format", "images of a format that training does not decode"
)
DAMAGED = _error("damaged_image", "images that are cut off or damaged")
TOO_LARGE = _error("too_large", "images of more pixels than Pillow's limit")
CONFLICT = _error("conflicting_labels", "the same image with different labels")
LEAK = _error("leak", "images that are also in a verification set")
VAL_DAMAGED = _error("val_damaged", "verification sets or images not read", False)
TOO_MANY_CLASSES = _error("too_many_classes", "classes beyond num_classes", False)

SAME_BYTES = _warning("same_bytes", "copies of another file, byte by byte", True)
SAME_PIXELS = _warning("same_pixels", "the pixels of another image", True)
NEAR_LEAK = _warning("near_leak", "images similar to one of a verification set")
CMYK = _warning("cmyk", "CMYK images; training converts them to RGB")
GREY = _warning("grey", "grey images; training repeats the channel")
ALPHA = _warning("alpha", "transparent images; training drops the alpha channel")
SIXTEEN_BIT = _warning("sixteen_bit", "16-bit images; training takes 8 bits")
ANIMATED = _warning("animated", "animations; training takes the first frame")
ROTATED = _warning("rotated", "images rotated by EXIF, which training ignores")
BLANK = _warning("blank", "images of a single color")
EMPTY_CLASSES = _warning("empty_classes", "classes without an image")
SINGLE_CLASSES = _warning("single_picture_classes", "classes of one image")
UNLISTED = _warning("unlisted_file", "images in the folder that are not listed")
NOT_READ = _warning("file_not_read", "files in class folders that are not images")
LOOSE = _warning("outside_classes", "images outside of any class folder")

KINDS = tuple(value for value in list(globals().values()) if isinstance(value, Kind))
