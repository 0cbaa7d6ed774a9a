"""Image lists: PLSC's label.txt, one "path label" per line below a data root."""

from __future__ import annotations

import array

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.source import IndexedSource

# Files looked for before training starts; all of them would take minutes on a
# remote file system. Those that are missing further on are named when they come.
_PROBES = 16


def image_list(
    folder: str,
    list_name: str = "label.txt",
    *,
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Reads a list of "path label" lines; paths are relative to the folder.

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
    paths.require_folder(folder)
    list_path = paths.join(folder, list_name)
    if not tf.io.gfile.exists(list_path):
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {list_name}. {paths.found(folder)} "
            f"{_hint(folder, list_name)}"
        )
    labels, lines = array.array("q"), array.array("q")
    table = paths.PathTable(folder, _entries(list_path, labels, lines))
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
    )
    _probe(table, describe)
    return source


def _entries(list_path: str, labels: array.array, lines: array.array):
    """Yields the paths of a list and appends their labels and line numbers."""
    with tf.io.gfile.GFile(list_path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            line = line.strip()
            if not line:
                continue
            path, _, label = line.replace(b"\t", b" ").rpartition(b" ")
            try:
                labels.append(int(label))
            except (ValueError, OverflowError):
                path = b""
            if not path:
                raise ValueError(
                    f"{list_path}, line {number}: expected a path and a whole number, "
                    "as in 'images/0001.jpg 0'. "
                    f"Received: {line[:120].decode(errors='replace')!r}."
                )
            lines.append(number)
            yield path.rstrip()


def _probe(table: paths.PathTable, describe) -> None:
    """Checks that a few of the files exist, so that a wrong root fails at once."""
    count = len(table)
    for index in sorted({k * (count - 1) // _PROBES for k in range(_PROBES + 1)}):
        if not tf.io.gfile.exists(table[index]):
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
