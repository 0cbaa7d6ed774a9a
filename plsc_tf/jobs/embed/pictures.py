"""Which pictures are to be embedded, and where the faces in them are."""

import os

import numpy as np

from plsc_tf.data import paths
from plsc_tf.data.lines import read_lines
from plsc_tf.storage import files

# x and y of five points.
_NUMBERS = 10


def listed(images, image_dir="", landmarks=""):
    """The pictures that the options name.

    Args:
        images: a folder or a list, see the option.
        image_dir: that the names of a list are below; "": the list's own folder.
        landmarks: file of points, or "".

    Returns:
        (names, `Located`, points): points are float32 [pictures, 5, 2], or None where
        pictures are not aligned.

    Raises:
        FileNotFoundError: there is no such folder, list or file of points.
        ValueError: no picture, a name twice, or a line that is something else.
    """
    if not images:
        raise ValueError(
            "images must name a folder of pictures, or a list of them. Received: "
            "images=''."
        )
    files.prepare(images)
    if files.is_dir(images):
        if image_dir:
            raise ValueError(
                "image_dir is for a list of pictures. Received: "
                f"image_dir={image_dir!r}, images={images!r}, which is a folder."
            )
        folder, names, points = images, _below(images), None
    else:
        if not files.exists(images):
            raise FileNotFoundError(f"There is no folder or list images={images!r}.")
        folder = image_dir or files.parent(images)
        names, points = _read(images, may_lack_points=True)
    if landmarks and points is not None:
        raise ValueError(
            f"{images} holds points itself: leave out landmarks={landmarks!r}."
        )
    if landmarks:
        points = _of_names(landmarks, names)
    return names, Located(folder, names), points


class Located:
    """Paths of pictures, made when they are asked for."""

    def __init__(self, folder, names):
        self._folder, self._names = folder, names

    def __len__(self):
        return len(self._names)

    def __getitem__(self, chosen):
        if isinstance(chosen, slice):
            return [files.join(self._folder, name) for name in self._names[chosen]]
        return files.join(self._folder, self._names[chosen])


def _below(folder):
    """Pictures below a folder, sorted by name."""
    found = []
    root = folder.rstrip("/") + "/"
    for place, _, file_names in files.walk(folder):
        place = place.rstrip("/") + "/"
        inside = "" if place == root else place.removeprefix(root)
        found += [
            inside + name
            for name in file_names
            if name.lower().endswith(paths.IMAGE_ENDINGS)
        ]
    if not found:
        raise ValueError(
            f"There is no picture below {folder!r}. Expected files that end in "
            f"{', '.join(paths.IMAGE_ENDINGS)}. {paths.names_in(folder)}"
        )
    return sorted(found)


def _of_names(landmarks, names):
    """Points of pictures, from a file that may hold others too."""
    if not files.exists(landmarks):
        raise FileNotFoundError(f"There is no file landmarks={landmarks!r}.")
    known, points = _read(landmarks, may_lack_points=False)
    rows = {name: row for row, name in enumerate(known)}
    missing = [name for name in names if name not in rows]
    if missing:
        raise ValueError(
            f"{landmarks} lacks {len(missing)} of {len(names)} pictures, such as "
            f"{missing[0]!r}. Names must be written as in the list, or from the folder "
            f"on. It holds {len(known)}, such as {known[0]!r}."
        )
    return points[[rows[name] for name in names]]


def _read(path, may_lack_points):
    """(names, float32 [n, 5, 2] or None) of a list."""
    names, rows, seen = [], [], {}
    for number, line in read_lines(path):
        text = os.fsdecode(line.removeprefix(b"\xef\xbb\xbf")).strip()
        if not text:
            continue
        name, points = _split(text)
        lacks = points is None and not may_lack_points
        if lacks or (names and (points is None) != (rows[0] is None)):
            raise ValueError(
                f"{path}, line {number}: expected a picture and ten numbers, x and y "
                f"of five points, as on the other lines. Received: {text[:120]!r}."
                if lacks or points is None
                else f"{path}, line {number}: expected a picture without numbers, as "
                f"on the lines before. Received: {text[:120]!r}."
            )
        if seen.setdefault(name, number) != number:
            raise ValueError(
                f"{path}, line {number}: {name!r} is on line {seen[name]} too. Each "
                "picture has one name and one row."
            )
        names.append(name)
        rows.append(points)
    if not names:
        raise ValueError(f"{path} is empty. Expected a picture on each line.")
    if rows[0] is None:
        return names, None
    return names, np.array(rows, np.float32).reshape(-1, 5, 2)


def _split(text):
    """(name, ten numbers or None); a detector's score after them is dropped."""
    if "\t" in text:
        name, rest = text.split("\t", 1)
        values = _numbers(rest.split())
        if values is None and rest.strip():
            return text, None
        return name.strip(), values and values[:_NUMBERS]
    fields = text.split()
    values = _numbers(fields[1:])
    if values is not None and len(values) == _NUMBERS + 1:
        return fields[0], values[:_NUMBERS]
    name, *last = text.rsplit(None, _NUMBERS)
    values = _numbers(last)
    return (text, None) if values is None else (name, values)


def _numbers(words):
    if len(words) not in (_NUMBERS, _NUMBERS + 1):
        return None
    try:
        values = [float(word) for word in words]
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None
