"""Image lists: PLSC's label.txt, one "path label" per line below a data root."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterator

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.lines import file_exists, read_lines
from plsc_tf.data.source import IndexedSource
from plsc_tf.storage import files

# Files looked for before training starts; all of them would take minutes on a
# remote file system. Those that are missing further on are named when they come.
_PROBES = 16
_LARGEST_DIGITS = 18


@dataclasses.dataclass(frozen=True, slots=True)
class BadLine:
    """A line of a list that does not name an image and label.

    Attributes:
        number: of the line, from 1.
        path: that it names, or None.
        text: its beginning.
    """

    number: int
    path: bytes | None
    text: bytes


def image_list(
    folder: str,
    list_name: str = "label.txt",
    *,
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Reads a list of "path label" lines; paths are relative to the folder.

    The label is what stands behind the last white space, as PLSC splits lines, so that
    tabs, several spaces and spaces in names are all read.

    Args:
        folder: the data root, which holds the list and the images.
        list_name: file name of the list.
        num_classes: number of classes; None means largest label + 1.
        labels_offset: subtracted from each label.

    Raises:
        FileNotFoundError: no folder, no list, or no image where the list says.
        ValueError: an empty list, a line that is no "path label", a label out of
            range; with the number of the line.
    """
    list_path = require_list(folder, list_name)
    labels, lines = array.array("q"), array.array("q")
    table = paths.PathTable(folder, _strict(list_path, labels, lines))
    if not labels:
        raise ValueError(
            f"{list_path} is empty. Expected one line per image: the path below "
            f"{folder!r} and the label, as in 'images/0001.jpg 0'."
        )

    def describe(index: int) -> str:
        return f"{list_path}, line {lines[index]} ({table[index]})"

    source = IndexedSource(
        list_path,
        np.array(labels, np.int64) - labels_offset,
        table.read,
        num_classes=num_classes,
        describe=describe,
        stamp=table.stamp,
        contents=table.contents,
    )
    source.files = table
    _probe(table, describe)
    return source


def require_list(folder: str, list_name: str) -> str:
    """Returns the path of a list that exists; the error says what lies there."""
    paths.require_folder(folder)
    list_path = paths.join(folder, list_name)
    if not files.exists(list_path):
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {list_name}. {paths.names_in(folder)} "
            f"{_hint(folder, list_name)}"
        )
    if files.is_dir(list_path):
        raise IsADirectoryError(f"{list_path} must be a file, but is a folder.")
    return list_path


def entries(list_path: str) -> Iterator[tuple[int, bytes, int] | BadLine]:
    """Yields (line number, path, label) of each line, and lines that are none.

    Memory is bounded by the longest line that `read_lines` returns.
    """
    for number, line in read_lines(list_path):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        fields = line.rsplit(None, 1)
        if not fields:
            continue
        path = fields[0].strip() if len(fields) == 2 else None
        if path is not None and b"\0" in path:
            # The system would cut the path there.
            path = None
        digits = fields[-1].removeprefix(b"-").removeprefix(b"+")
        if path is None or not digits.isdigit() or len(digits) > _LARGEST_DIGITS:
            yield BadLine(number, path, line[:120])
        else:
            yield number, path, int(fields[-1])


def _strict(list_path: str, labels: array.array, lines: array.array):
    """Yields the paths of a list and appends their labels and line numbers."""
    for entry in entries(list_path):
        if isinstance(entry, BadLine):
            raise bad_line_error(list_path, entry)
        number, path, label = entry
        labels.append(label)
        lines.append(number)
        yield path


def bad_line_error(list_path: str, bad: BadLine) -> ValueError:
    """Says what a line should be."""
    return ValueError(
        f"{list_path}, line {bad.number}: expected a path and a whole number, "
        "as in 'images/0001.jpg 0'. "
        f"Received: {bad.text.decode(errors='replace')!r}."
    )


def _probe(table: paths.PathTable, describe) -> None:
    """Checks that a few of the files exist, so that a wrong root fails at once."""
    count = len(table)
    for index in sorted({k * (count - 1) // _PROBES for k in range(_PROBES + 1)}):
        if not file_exists(table.paths(np.int64([index])).numpy()[0]):
            raise FileNotFoundError(
                f"There is no file for {describe(index)}. Paths in the list are "
                "relative to the folder of the list: is dataset_dir the right one?"
            )


def _hint(folder: str, list_name: str) -> str:
    names = paths.listing(folder)
    lists = [name for name in names if name.endswith(".txt") and "label" in name]
    if lists:
        return f"Is {lists[0]!r} the list? Rename it to {list_name!r}."
    if any(name.endswith("/") for name in names):
        return "Did you mean --dataset_name=folder?"
    return f"Write {list_name} with one 'path label' line per image."
