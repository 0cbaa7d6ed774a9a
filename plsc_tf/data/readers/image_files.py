"""Reads images in files of their own: lists such as PLSC's label.txt, class folders."""

import array
import os
import re
from collections.abc import Callable, Iterator

import numpy as np
from absl import logging

from plsc_tf.data import paths
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require
from plsc_tf.storage import files

# Number of files whose existence is checked on opening; checking all of them would take
# minutes on a remote file system. Other missing files are reported when they are read.
_PROBES = 16
_LABEL = re.compile(rb"[-+]?\d{1,18}")


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

    given = {"num_classes": num_classes, "describe": describe}
    classes = np.array(labels, np.int64) - labels_offset
    contents = table.contents
    source = IndexedSource(list_path, classes, table.read, contents=contents, **given)
    source.largest = table.largest
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
        if not (fields := line.rsplit(None, 1)):
            continue
        # The operating system would end a path at a null byte.
        has_path = len(fields) == 2 and b"\0" not in fields[0]
        path = fields[0].strip() if has_path else None
        valid = has_path and _LABEL.fullmatch(fields[-1])
        yield number, path, int(fields[-1]) if valid else None, line[:120]


def class_folders(
    folder: str,
    *,
    num_classes: int | None = None,
    keep: Callable[[str], bool] | None = None,
    images: Callable[[str], bool] | None = None,
) -> IndexedSource:
    """Reads images from class folders, including nested ones, in sorted order.

    Classes are numbered in the sorted order of their paths relative to `folder`.

    Args:
        folder: the folder that contains the class folders.
        num_classes: number of classes; None means the number of class folders.
        keep: function of a class path ("Greek/character01") that returns whether the
            class belongs to the set; None keeps all classes.
        images: function of an image path ("Greek/character01/0709_01.png") that returns
            whether the image belongs to the set; None keeps all images. It does not
            affect the numbering of the classes.

    Raises:
        FileNotFoundError: the folder does not exist or contains no images.
        ValueError: all images are outside class folders, or there are more classes
            than `num_classes`.
    """
    paths.require_folder(folder)
    classes, loose, others, empty = scan(folder, keep)
    if loose:
        logging.warning("%s: ignoring %d images without a class", folder, len(loose))
    if others:
        message = "%s: ignoring %d files that are not JPEG, PNG or GIF, such as %s"
        logging.warning(message, folder, len(others), others[0])
    names = list(classes)
    good = num_classes is None or num_classes >= len(names)
    rule = f"num_classes must be at least the {len(names)} class folders of {folder!r}"
    require(good, rule, num_classes=num_classes)
    if images is not None:
        classes = {n: [f for f in classes[n] if images(f"{n}/{f}")] for n in names}
    below = (os.fsencode(f"{n}/{f}") for n in names for f in classes[n])
    table = paths.PathTable(folder, below)
    labels = np.repeat(np.arange(len(names)), [len(classes[name]) for name in names])
    given = {"describe": table.__getitem__, "contents": table.contents}
    count = num_classes or len(names)
    source = IndexedSource(folder, labels, table.read, num_classes=count, **given)
    source.largest, source.class_names = table.largest, tuple(names)
    source.empty_folders = empty
    return source


def scan(
    folder: str, keep: Callable[[str], bool] | None = None
) -> tuple[dict[str, list[str]], list[str], list[str], list[str]]:
    """Finds the images in class folders.

    Args:
        folder: the folder that contains the class folders.
        keep: see `class_folders`.

    Returns:
        {class path: sorted image names} in sorted order, images that are directly in
        `folder`, other files, and empty class paths.

    Raises:
        FileNotFoundError: there are no images.
        ValueError: all images are outside class folders, or a link leads to a folder
            that was already read, so its images would be counted repeatedly.
    """
    classes, others, empty = {}, [], []
    for place, subfolders, names in files.walk(folder):
        subfolders[:] = sorted(n for n in subfolders if not n.startswith("."))
        name = place[len(folder) :].strip("/")
        if keep is not None and name and not keep(name):
            continue
        images = []
        for file in sorted(names):
            if file.lower().endswith(paths.IMAGE_ENDINGS):
                images.append(file)
            elif name and not file.startswith("."):
                others.append(f"{place}/{file}")
        if images:
            classes[name] = images
        elif name and not subfolders:
            empty.append(name)
    loose = classes.pop("", [])
    rule = f"{folder!r} has images, but no class folders"
    move = "Put each class into its own folder"
    advice = f"{move}, or write a label.txt and use --dataset_name=image_list"
    require(classes or not loose, rule, advice)
    if classes:
        return dict(sorted(classes.items())), loose, others, empty
    hint = "Expected one folder per class with JPEG, PNG or GIF files."
    if "label.txt" in paths.listing(folder):
        hint += " Did you mean --dataset_name=image_list?"
    raise FileNotFoundError(
        f"There are no images in {folder!r}. {paths.names_in(folder)} {hint}"
    )
