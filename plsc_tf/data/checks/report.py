"""A check's result as a table, as JSON and as a cleaned list."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import numpy as np

from plsc_tf.data.checks.listings import Listing
from plsc_tf.storage import files

_SHOWN = 3
_LINES = 4096


def rows(report: dict) -> list[tuple[str, str]]:
    """Returns the rows of a table: figures, then errors, then warnings."""
    classes = report["classes"]
    table = [
        ("data set", f"{report['data_set']}: {report['read']}"),
        ("images", f"{report['pictures']:,}"),
    ]
    if classes:
        count = f"{classes['num_classes']:,}, {classes['empty']:,} of them empty"
        histogram = [f"{k}: {n:,}" for k, n in classes["histogram"].items() if n]
        table += [
            ("classes", count),
            (
                "images per class",
                f"min {classes['min']:,}  median {classes['median']:,.6g}  "
                f"max {classes['max']:,}",
            ),
            ("classes by images", "  ".join(histogram)),
        ]
    else:
        table.append(("classes", "none: no label could be read"))
    if report["verification_pictures"]:
        table.append(("verification", f"{report['verification_pictures']:,} images"))
    if report["looked_for_unlisted_files"] is False:
        table.append(("unlisted files", "not searched for on a remote store"))
    for kind in report["findings"]:
        lines = [f"{kind['count']:,} {kind['text']}"]
        for one in kind["first"][:_SHOWN]:
            detail = f": {one['detail']}" if one["detail"] else ""
            lines.append(f"  {one['where']}{detail}")
        lines += ["  ..."] * (len(kind["first"]) > _SHOWN)
        table.append((f"{kind['severity']}: {kind['kind']}", "\n".join(lines)))
    table.append(("errors", f"{report['errors']:,}"))
    table.append(("warnings", f"{report['warnings']:,}"))
    return table


def write_report(path: str, report: dict) -> None:
    """Writes the report as JSON; replaces an older one."""
    text = json.dumps(report, indent=1, ensure_ascii=False)
    # Names of files may hold bytes that are not UTF-8.
    files.replace(path, text.encode(errors="backslashreplace"))


def write_cleaned_list(path: str, listing: Listing, table: np.ndarray) -> int:
    """Writes "path label" lines of the sound images.

    One image of equal ones stays; none of those that have different labels, or that
    are in a verification set.

    Args:
        path: a new file.
        listing: of images that are files.
        table: of the check.

    Returns:
        number of lines.
    """
    good = np.flatnonzero(~table["removed"]).tolist()
    labels = table["label"]
    return write_list(path, lambda: ((listing.path(k), labels[k]) for k in good))


def write_list(path: str, entries: Callable[[], Iterator[tuple[bytes, int]]]) -> int:
    """Writes "path label" lines; leaves out paths with line ends.

    Args:
        path: a new file.
        entries: yields (path, label) of each image; called again after a fault.

    Returns:
        number of lines.
    """
    count = 0

    def chunks():
        nonlocal count
        count = 0
        lines = (b"%b %d\n" % (name, k) for name, k in entries() if b"\n" not in name)
        while chunk := list(itertools.islice(lines, _LINES)):
            count += len(chunk)
            yield b"".join(chunk)

    files.replace(path, chunks)
    return count


def check_outputs(reports: dict[str, str], lists: dict[str, str]) -> None:
    """Raises an error for outputs that cannot be written, or overwrite something.

    Args:
        reports: {option: path or ""} of JSON files, which are replaced.
        lists: {option: path or ""} of new files.

    Raises:
        FileExistsError: a list exists.
        FileNotFoundError: the folder of an output does not exist.
        ValueError: a report does not end in .json.
    """
    for name, path in reports.items():
        if path and not path.endswith(".json"):
            raise ValueError(f"{name} must end in .json. Received: {name}={path!r}.")
    for name, path in lists.items():
        if path and files.exists(path):
            raise FileExistsError(
                f"{name} {path!r} already exists; nothing is overwritten."
            )
    for name, path in {**reports, **lists}.items():
        folder = path.rpartition("/")[0]
        if folder and not files.is_dir(folder):
            raise FileNotFoundError(f"{name}: there is no folder {folder!r}.")


def check_listable(listing: Listing, option: str) -> None:
    """Raises ValueError if a list cannot name the images, which are not files."""
    if listing.folder is None:
        raise ValueError(
            f"{option} is a list of files, but the images of {listing.name!r} are not "
            "files of their own. Leave it out."
        )
