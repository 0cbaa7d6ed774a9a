"""Presents a check's result as a table, as JSON and as a cleaned list."""

import codecs
import itertools
import json
from collections.abc import Callable, Iterator

import numpy as np

from plsc_tf.data.checks.listings import Listing
from plsc_tf.requirements import require
from plsc_tf.storage import files, outputs

_SHOWN = 3
_LINES = 4096


def rows(report: dict) -> list[tuple[str, str]]:
    """Returns the rows of the table: statistics, then errors, then warnings."""
    classes = report["classes"]
    read = f"{report['data_set']}: {report['read']}"
    table = [("data set", read), ("images", f"{report['pictures']:,}")]
    if classes:
        count = f"{classes['num_classes']:,}, {classes['empty']:,} of them empty"
        histogram = [f"{k}: {n:,}" for k, n in classes["histogram"].items() if n]
        spread = "min {min:,}  median {median:,.6g}  max {max:,}".format(**classes)
        table += [("classes", count), ("images per class", spread)]
        table.append(("classes by images", "  ".join(histogram)))
    else:
        table.append(("classes", "none: no label could be read"))
    if report["verification_pictures"]:
        table.append(("verification", f"{report['verification_pictures']:,} images"))
    for kind in report["findings"]:
        lines = [f"{kind['count']:,} {kind['text']}"]
        for one in kind["first"][:_SHOWN]:
            text = f"{one['where']}: {one['detail']}".removesuffix(": ")
            # A line break in a file's name must not begin a line of the table.
            lines.append(f"  {' '.join(text.splitlines())}")
        lines += ["  ..."] * (len(kind["first"]) > _SHOWN)
        table.append((f"{kind['severity']}: {kind['kind']}", "\n".join(lines)))
    return table + [(kind, f"{report[kind]:,}") for kind in ("errors", "warnings")]


def write_report(path: str, report: dict) -> None:
    """Writes the report as JSON, replacing an existing one."""
    text = json.dumps(report, indent=1, ensure_ascii=False)
    # File names may contain bytes that are not UTF-8.
    files.replace(path, text.encode(errors="backslashreplace"))


def write_cleaned_list(path: str, listing: Listing, table: np.ndarray) -> int:
    """Writes "path label" lines for the images without errors.

    Of identical images, keeps only the first, and none if their labels differ. Omits
    images that are also in a verification set.

    Args:
        path: path of a new file.
        listing: the images, which must be files.
        table: the check's table.

    Returns:
        The number of lines.
    """
    good = np.flatnonzero(~table["removed"]).tolist()
    labels = table["label"]
    return write_list(path, lambda: ((listing.path(k), labels[k]) for k in good))


def write_list(path: str, entries: Callable[[], Iterator[tuple[bytes, int]]]) -> int:
    """Writes "path label" lines; omits paths that lists cannot have: see `lines`.

    Args:
        path: path of a new file.
        entries: function that yields (path, label) of each image; called again if
            writing must be retried.

    Returns:
        The number of lines.
    """
    count = 0

    def chunks():
        nonlocal count
        count = 0
        lines = (b"%b %d\n" % (name, k) for name, k in entries() if _fits(name))
        while chunk := list(itertools.islice(lines, _LINES)):
            count += len(chunk)
            yield b"".join(chunk)

    outputs.create(path, chunks)
    return count


def _fits(name):
    """Returns whether a list can have a path, which ends and begins as it is read."""
    return b"\n" not in name and name == name.removeprefix(codecs.BOM_UTF8).strip()


def check_output(path: str, option: str, open_listing: Callable | None = None) -> None:
    """Raises an error if an output cannot be written.

    Args:
        path: the file, or "" if there is none. It is replaced, unless it is a list.
        option: the option that names it.
        open_listing: for a list of images, function that returns their `Listing`.

    Raises:
        FileExistsError: the list exists.
        FileNotFoundError: the folder of the output does not exist.
        ValueError: the images are not files, which a list requires.
    """
    folder = path.rpartition("/")[0]
    if folder and not files.is_dir(folder):
        raise FileNotFoundError(f"The folder of {option} does not exist: {folder!r}.")
    if not (path and open_listing):
        return
    outputs.require_absent(path, option)
    listing = open_listing()
    rule = f"{option} lists files, but {listing.name!r} does not store images as files"
    require(listing.folder is not None, rule, f"Leave out {option}")
