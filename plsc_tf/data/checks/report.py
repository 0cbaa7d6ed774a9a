"""A check's result as a table, as JSON and as a cleaned list."""

from __future__ import annotations

import json

import numpy as np

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.doctor import CheckResult, removed
from plsc_tf.storage import files

_SHOWN = 3


def rows(result: CheckResult) -> list[tuple[str, str]]:
    """The rows of a table for people: numbers first, then errors, then warnings."""
    report = result.report
    found = [
        ("data set", f"{report['data_set']}: {report['read']}"),
        ("pictures", f"{report['pictures']:,}"),
        *_class_rows(report["classes"]),
        *_size_rows(report["sizes"]),
    ]
    if report["verification_pictures"]:
        found.append(("verification", f"{report['verification_pictures']:,} pictures"))
    if report["looked_for_unlisted_files"] is False:
        found.append(("unlisted files", "not looked for: the store is a remote one"))
    for severity in (kinds.ERROR, kinds.WARNING):
        for kind in kinds.KINDS:
            count = result.findings.counts[kind]
            if kind.severity == severity and count:
                found.append((f"{severity}: {kind.name}", _finding(result, kind)))
    found.append(("errors", f"{report['errors']:,}"))
    found.append(("warnings", f"{report['warnings']:,}"))
    return found


def write_report(path: str, result: CheckResult) -> None:
    """Writes the report as JSON, in place of an older one."""
    text = json.dumps(result.report, indent=1, ensure_ascii=False)
    # Names of files may hold bytes that are no UTF-8.
    files.replace(path, text.encode(errors="backslashreplace"))


def write_cleaned_list(path: str, result: CheckResult) -> int:
    """Writes "path label" lines of the pictures that are sound.

    One picture of equal ones stays; none of those that have different labels, or that
    are in a verification set.

    Args:
        path: a file that is not there.
        result: of a data set whose pictures are files.

    Returns:
        number of lines.
    """
    listing, table = result.listing, result.table
    good = np.flatnonzero(~removed(table))
    labels = table.labels

    def lines():
        for begin in range(0, len(good), 4096):
            chunk = good[begin : begin + 4096].tolist()
            yield b"".join(
                listing.path(row) + b" %d\n" % labels[row]
                for row in chunk
                if b"\n" not in listing.path(row)
            )

    files.replace(path, lines)
    return len(good)


def check_outputs(report: str, cleaned_list: str) -> None:
    """Refuses outputs that could overwrite something.

    Raises:
        FileExistsError: there is a file where the cleaned list would go.
        FileNotFoundError: the folder of an output is not there.
        ValueError: a report that does not end in .json.
    """
    if report and not report.endswith(".json"):
        raise ValueError(f"report must end in .json. Received: report={report!r}.")
    if cleaned_list and files.exists(cleaned_list):
        raise FileExistsError(
            f"cleaned_list {cleaned_list!r} is there already; nothing is overwritten."
        )
    for name, path in (("report", report), ("cleaned_list", cleaned_list)):
        folder = path.rpartition("/")[0]
        if folder and not files.is_dir(folder):
            raise FileNotFoundError(f"{name}: there is no folder {folder!r}.")


def _finding(result: CheckResult, kind: kinds.Kind) -> str:
    first = result.findings.first(kind)[:_SHOWN]
    count = result.findings.counts[kind]
    lines = [f"{count:,} {kind.text}", *(f"  {found}" for found in first)]
    if len(result.findings.first(kind)) > _SHOWN:
        lines.append("  ...")
    return "\n".join(lines)


def _class_rows(classes: dict) -> list[tuple[str, str]]:
    if not classes:
        return [("classes", "none: no label could be read")]
    histogram = "  ".join(
        f"{name}: {count:,}" for name, count in classes["histogram"].items() if count
    )
    return [
        ("classes", f"{classes['num_classes']:,}, {classes['empty']:,} of them empty"),
        (
            "pictures per class",
            f"min {classes['min']:,}  median {classes['median']:,.6g}  "
            f"max {classes['max']:,}",
        ),
        ("classes by pictures", histogram),
    ]


def _size_rows(sizes: dict) -> list[tuple[str, str]]:
    if not sizes:
        return []
    common = "  ".join(
        f"{s['height']} x {s['width']}: {s['pictures']:,}" for s in sizes["common"]
    )
    more = sizes["different"] - len(sizes["common"])
    return [
        ("height x width", common + (f"  and {more:,} other sizes" if more else "")),
        (
            "bytes per picture",
            f"min {sizes['bytes']['min']:,}  median {sizes['bytes']['median']:,.6g}  "
            f"max {sizes['bytes']['max']:,}",
        ),
    ]
