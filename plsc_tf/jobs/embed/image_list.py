"""Lists the images to embed and their facial landmarks."""

import os
import re

import numpy as np
from absl import logging

from plsc_tf.data import paths
from plsc_tf.evaluation import lists
from plsc_tf.requirements import listed, require
from plsc_tf.storage import files, zips

# Each text is a number in one way only: matching could otherwise take hours.
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


def list_images(
    images: str, image_dir: str = "", landmarks: str = ""
) -> tuple[list[str], list[str], np.ndarray | None]:
    """Lists the images that the options name.

    Args:
        images: path of a folder or a list; see the option.
        image_dir: folder that the names in a list are relative to; "" means the list's
            folder.
        landmarks: path of a file with landmarks, or "".

    Returns:
        (names, paths, points): points are float32 `[images, 5, 2]`, or None if images
        are not aligned.

    Raises:
        FileNotFoundError: the folder, list or landmarks file does not exist.
        ValueError: there are no images, a name occurs twice, or a line is invalid.
    """
    require(images, "images must name a folder or a list of images", images="''")
    images = zips.address(images)
    folder, points = image_dir or files.parent(images), None
    if not files.is_dir(images):
        names = list(_read(images, lambda text: (text, ())))
    else:
        rule = "image_dir requires images to be a list file, not a folder"
        require(not image_dir, rule, image_dir=repr(image_dir), images=repr(images))
        folder, names = images, _names_below(images)
    if landmarks:
        points, _ = points_of(names, landmarks)
    return names, [files.join(folder, name) for name in names], points


def _names_below(folder):
    """Returns the names of all images below a folder, sorted."""
    found = sorted(
        f"{place.rstrip('/')}/{name}".removeprefix(folder.rstrip("/") + "/")
        for place, _, file_names in files.walk(folder)
        for name in file_names
    )
    names = [name for name in found if name.lower().endswith(paths.IMAGE_ENDINGS)]
    if others := sorted({*found} - {*names}):
        logging.warning("Left out files of other types: %s", listed(others))
    if not names:
        raise ValueError(
            f"{folder!r} contains no images. Expected files that end in "
            f"{', '.join(paths.IMAGE_ENDINGS)}. {paths.names_in(folder)}"
        )
    return names


def points_of(names: list[str], path: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads images' points from a file that may contain other images, too.

    Args:
        names: names of the images.
        path: path of the file; each line has a name, x and y of five points and,
            possibly, the detector's score.

    Returns:
        (points float32 `[images, 5, 2]`, scores float32 `[images]`, 1 without a score).

    Raises:
        ValueError: a line is invalid, or the file lacks an image.
    """
    known = _read(path, _split)
    numbers = np.array(list(known.values()), np.float32)
    numbers = numbers[lists.positions(names, list(known), path)]
    return numbers[:, :10].reshape(-1, 5, 2), numbers[:, 10]


def _read(path, split):
    """Returns {name: values} of a list of images.

    Args:
        path: path of the list.
        split: function that splits a line into its name and its values; they are None
            if the line lacks them.
    """
    entries = {}
    for number, line in paths.read_lines(path):
        if not (text := os.fsdecode(line).strip()):
            continue
        name, values = split(text)
        place = f"{path}, line {number}"
        rule = f"{place}: expected an image and ten numbers (x and y of five points)"
        require(values is not None, rule, line=repr(text[:120]))
        require(name not in entries, f"{place}: {name!r} is listed twice")
        entries[name] = values
    require(entries, f"{path} is empty. Expected an image on each line")
    return entries


def _split(text):
    """Splits a line into (name, ten numbers and a detector's score, or None).

    The name ends at a tab, or has none; the score is 1 if the line has none.
    """
    name, _, rest = text.partition("\t")
    splits = [name, *rest.split()], text.rsplit(None, 11), text.rsplit(None, 10)
    for name, *words in splits:
        fits = len(words) in (10, 11) and "\t" not in name
        if fits and all(map(_NUMBER.fullmatch, words)):
            return name.strip(), [*map(float, words), 1.0][:11]
    return text, None
