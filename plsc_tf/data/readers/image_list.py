"""Reads image lists such as PLSC's label.txt, with one "path label" per line."""

import array
import os
from collections.abc import Iterator

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require
from plsc_tf.storage import files

# Number of files whose existence is checked on opening; checking all of them would take
# minutes on a remote file system. Other missing files are reported when they are read.
_PROBES = 16
_LARGEST_DIGITS = 18


def image_list(
    folder: str,
    list_name: str = "label.txt",
    *,
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Reads a list of "path label" lines; paths are relative to the folder.

    As in PLSC, the label is the text after the last whitespace, so tabs, multiple
    spaces and file names with spaces are supported.

    Args:
        folder: the data root, which contains the list and the images.
        list_name: file name of the list.
        num_classes: number of classes; None means the largest label + 1.
        labels_offset: number to subtract from each label.

    Raises:
        FileNotFoundError: the folder, the list or a listed image does not exist.
        ValueError: the list is empty, a line is not "path label", or a label is out of
            range; the message gives the number of the line.
    """
    list_path = require_list(folder, list_name)
    labels, numbers = array.array("q"), array.array("q")

    def good_paths():
        for number, path, label, text in lines(list_path):
            if label is None:
                raise ValueError(
                    f"{list_path}, line {number}: expected a path and a whole number, "
                    "as in 'images/0001.jpg 0'. "
                    f"Received: {text.decode(errors='replace')!r}."
                )
            labels.append(label)
            numbers.append(number)
            yield path

    table = paths.PathTable(folder, good_paths())
    rule = f"{list_path} is empty. Expected one line per image: its path and its label"
    advice = f"Paths are relative to {folder!r}, as in 'images/0001.jpg 0'"
    require(labels, rule, advice)

    def describe(index: int) -> str:
        return f"{list_path}, line {numbers[index]} ({table[index]})"

    source = IndexedSource(
        list_path,
        np.array(labels, np.int64) - labels_offset,
        table.read,
        num_classes=num_classes,
        describe=describe,
        stamp=table.stamp,
        contents=table.contents,
    )
    # Check a few images so that a wrong root fails immediately.
    for index in {k * (len(table) - 1) // _PROBES for k in range(_PROBES + 1)}:
        if not files.exists(os.fsdecode(table.path(index))):
            raise FileNotFoundError(
                f"There is no file for {describe(index)}. Paths in the list are "
                "relative to the folder of the list: is dataset_dir correct?"
            )
    return source


def require_list(folder: str, list_name: str) -> str:
    """Returns the path of a list; raises FileNotFoundError if it does not exist."""
    paths.require_folder(folder)
    list_path = paths.join(folder, list_name)
    if not files.exists(list_path):
        hint = f"Write {list_name} with one 'path label' line per image."
        if any(name.endswith("/") for name in paths.listing(folder)):
            hint = "Did you mean --dataset_name=folder?"
        raise paths.no_file(folder, list_name, hint)
    return list_path


def lines(list_path: str) -> Iterator[tuple]:
    """Yields (number, path, label, text) for each nonempty line of a list.

    The path is None if the line has none, and the label None if the line is not "path
    label"; the text is the beginning of the line.

    Memory is bounded by the longest line that `paths.read_lines` accepts.
    """
    for number, line in paths.read_lines(list_path):
        fields = line.rsplit(None, 1)
        if not fields:
            continue
        # The operating system would end a path at a null byte.
        has_path = len(fields) == 2 and b"\0" not in fields[0]
        path = fields[0].strip() if has_path else None
        digits = fields[-1].removeprefix(b"-").removeprefix(b"+")
        valid = has_path and digits.isdigit() and len(digits) <= _LARGEST_DIGITS
        yield number, path, int(fields[-1]) if valid else None, line[:120]
