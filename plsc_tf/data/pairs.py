"""Verification sets: images, and pairs that show the same person or two people."""

import dataclasses
import itertools
import os
import pickle
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data import faults, images, paths, unpickle
from plsc_tf.data.image_limit import MAX_MEGAPIXELS, checked, num_pixels, read_image
from plsc_tf.data.preprocessing import Preprocessing
from plsc_tf.data.source import without_autograph
from plsc_tf.requirements import listed, require
from plsc_tf.storage import files, outputs

# Verification uses ten consecutive folds.
_FOLDS = 10
# The oldest protocol that supports bytes objects over 4 GB; Python 3.4 and later can
# read it.
_PICKLE_PROTOCOL = 4


@dataclasses.dataclass(frozen=True)
class Pairs:
    """A verification set.

    Args:
        name: name for messages and logs.
        images: encoded images, or one uint8 array `[n, h, w, 3]`.
        left: int64 `[p]`, index of the first image of each pair.
        right: int64 `[p]`, index of the second image of each pair.
        same: bool `[p]`, whether both images show the same class.
        files: names of the images, for error messages; () if they have none.
        mirror: whether a mirrored image belongs to the same class, which is not true
            of characters.
        path: path of the file that lists the pairs; "" if there is none.
        framing: the preprocessing whose `evaluate` frames the images, see `framed`;
            None uses the whole image, resized.
        max_megapixels: largest encoded image to decode, in millions of pixels.
    """

    name: str
    images: list[bytes] | np.ndarray
    left: np.ndarray
    right: np.ndarray
    same: np.ndarray
    files: tuple[str, ...] = ()
    mirror: bool = True
    path: str = ""
    framing: Preprocessing | None = None
    max_megapixels: float = MAX_MEGAPIXELS

    def __post_init__(self):
        for name, dtype in (("left", np.int64), ("right", np.int64), ("same", bool)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype))
        shapes = (self.left.shape, self.right.shape, self.same.shape)
        fits = len(set(shapes)) == 1 and self.left.ndim == 1 and len(self.left)
        rule = f"left, right and same of {self.name!r} must be vectors of one length"
        require(fits, rule, "At least one pair is needed", shapes=shapes)
        indices, count = np.concatenate([self.left, self.right]), len(self.images)
        low, high = indices.min(), indices.max()
        rule = f"left and right must be indices of the {count} images of {self.name!r}"
        require(0 <= low and high < count, rule, indices=f"{low}...{high}")

    def __len__(self) -> int:
        return len(self.left)

    def framed(self, framing: Preprocessing | None) -> "Pairs":
        """Returns the set with its images framed by a network's preprocessing."""
        return dataclasses.replace(self, framing=framing)

    def decoded(
        self, image_size: tuple[int, int] | None = None, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns images as uint8 `[n, h, w, 3]`.

        Args:
            image_size: (height, width); None uses the framing's size or, without
                framing, the images' own size.
            rows: int `[n]`, indices of the images; None returns all of them.

        Raises:
            ValueError: an image cannot be decoded or is too large, or the images differ
                in size and `image_size` is None.
        """
        stored, framing = self.images, self.framing or Preprocessing("none", ())
        size = tuple(image_size or framing.image_size)
        own_size = stored.shape[1:3] if isinstance(stored, np.ndarray) else None
        if own_size and type(framing) is Preprocessing and size in ((), own_size):
            return stored if rows is None else stored[rows]
        rows = range(len(stored)) if rows is None else rows
        chosen = (stored if own_size else np.array(stored, object))[rows]
        framing = dataclasses.replace(framing, image_size=size)
        decode = framing.evaluate if size else images.to_rgb

        def limited(image):
            return decode(checked(image, self.max_megapixels))

        dataset = tf.data.Dataset.from_tensor_slices(chosen)
        dataset = dataset.map(without_autograph(limited), tf.data.AUTOTUNE)
        decoded: list[np.ndarray] = []
        try:
            for image in dataset.as_numpy_iterator():
                decoded.append(image)
        except faults.READ_ERRORS as error:
            row = rows[len(decoded)]
            where = self.files[row] if self.files else f"image {row}"
            raise ValueError(
                f"The verification set {self.name!r} cannot be decoded at {where}: "
                f"{faults.reason(error)} Replace the image or the set."
            ) from error
        sizes = {image.shape[:2] for image in decoded}
        rule = f"The images of {self.name!r} differ in size"
        require(len(sizes) == 1, rule, "Set image_size", sizes=list(sizes)[:3])
        return np.stack(decoded)


def load_pairs(path: str, images_dir: str | None = None) -> Pairs:
    """Loads a verification set: insightface's .bin, or a text file of pairs.

    A text file has the format of LFW's pairs.txt, the format of CALFW and CPLFW, or
    lines "left right 1" (or 0) with the paths of two images.

    Args:
        path: path of the .bin or .txt file.
        images_dir: folder of the images that a text file lists (for LFW, it contains
            <name>/<name>_0001.jpg). None uses the folder of the text file or, if the
            images are not there, the first subfolder that has them, such as CPLFW's
            "aligned images".

    Raises:
        FileNotFoundError: the file or some of its images do not exist.
        ValueError: the file's content does not match its extension, or its pickle
            contains anything but plain data.
    """
    path = str(path)
    if not files.exists(path) or files.is_dir(path):
        folder = path.rpartition("/")[0] or "."
        raise FileNotFoundError(
            f"There is no verification set {path!r}. {paths.names_in(folder)}"
        )
    name = path.rpartition("/")[2].rpartition(".")[0]
    if path.endswith(".bin"):
        return _load_bin(path, name)
    rule = "A verification set must be a .bin (insightface) or a .txt (pairs)"
    require(path.endswith(".txt"), rule, path=repr(path))
    return _load_pairs_txt(path, images_dir, name)


def _load_bin(path: str, name: str) -> Pairs:
    """Reads a pickle (encoded images, is_same); images 2i and 2i + 1 are pair i."""
    data = files.read(path)
    content = unpickle.load_plain(data, path)
    parts = content if isinstance(content, list) else [content]
    encoded, same = parts if len(parts) == 2 else (None, None)
    # Avoid `np.asarray`: with nested lists, a file of a few bytes could make it exhaust
    # memory, as could a list of an array of shape [1000000000, 0].
    same = same.tolist() if isinstance(same, np.ndarray) and same.ndim == 1 else same
    numbers = bool | int | float | np.generic
    good = isinstance(same, list) and all(isinstance(one, numbers) for one in same)
    good = good and same and isinstance(encoded, list) and len(encoded) == 2 * len(same)
    rule = f"{path}: Expected (images, is_same) with two images per entry of is_same"
    kinds = [type(part).__name__ for part in parts[:2]]
    lengths = [len(part) if np.iterable(part) else 1 for part in parts[:2]]
    require(good, rule, types=kinds, lengths=lengths)
    for position, image in enumerate(encoded):
        good = isinstance(image, bytes | bytearray | np.ndarray)
        rule = f"{path}: image {position} must be encoded bytes"
        require(good, rule, type=type(image).__name__)
    # A pickle may refer to an image, or to an array's bytes, again and again.
    buffers = {id(image): memoryview(image) for image in encoded}
    fits = sum(buffer.nbytes for buffer in buffers.values()) <= len(data)
    require(fits, f"{path}: its images have more bytes than the file")
    converted = {key: bytes(buffer) for key, buffer in buffers.items()}
    # Store an image of several pairs once, so that it is decoded and embedded once.
    rows: dict[bytes, int] = {}
    order = np.array([rows.setdefault(converted[id(k)], len(rows)) for k in encoded])
    firsts = np.unique(order, return_index=True)[1]
    names = tuple(f"{path}, image {position}" for position in firsts)
    left, right = order[0::2], order[1::2]
    return Pairs(name, list(rows), left, right, same, files=names, path=path)


def _load_pairs_txt(path: str, images_dir: str | None, name: str) -> Pairs:
    """Reads a text file of pairs; see `load_pairs` for its formats."""
    rows: dict[str, int] = {}
    pairs = [
        (rows.setdefault(first, len(rows)), rows.setdefault(second, len(rows)), same)
        for first, second, same in _listed_pairs(path)
    ]
    require(pairs, f"{path} is empty. Expected one pair per line")
    folder = images_dir or _images_folder(path, next(iter(rows)))
    located = [paths.join(folder, file) for file in rows]
    missing = [file for file in located if not files.exists(file)]
    rule = f"{path} lists {len(missing)} images that do not exist: {listed(missing, 1)}"
    advice = "Set images_dir to the folder that contains them"
    require(not missing, rule, advice, raises=FileNotFoundError)
    # A file may have many names.
    kept: dict[bytes, bytes] = {}
    encoded = [kept.setdefault(one, one) for one in map(read_image, located)]
    columns = zip(*pairs, strict=True)
    return Pairs(name, encoded, *columns, files=tuple(located), path=path)


def _listed_pairs(path: str) -> Iterator[tuple[str, str, bool]]:
    """Yields (first file, second file, whether they show the same person)."""
    rows = []
    for number, line in paths.read_lines(path):
        # `fsdecode` keeps bytes in file names that are not UTF-8.
        line = os.fsdecode(line.rstrip(b"\r"))
        fields = line.split("\t") if "\t" in line else line.split()
        if not fields or (number == 1 and all(f.strip().isdigit() for f in fields)):
            continue
        rows.append((number, [field.strip() for field in fields]))
    if rows and len(rows[0][1]) == 2:
        yield from _lines_in_twos(path, rows)
        return
    for number, fields in rows:
        try:
            yield _pair_files(fields)
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: expected a line like 'Ann 1 2' or 'Ann 1 "
                "Bob 3', with tabs, or 'a.jpg b.jpg 1' (1: one person, 0: two). "
                f"Received: {' '.join(fields)[:120]!r}."
            ) from error


def _lines_in_twos(path: str, rows):
    """Yields the pairs of CALFW and CPLFW, which have two lines "image number" each.

    The number is 0 if the images show two people and otherwise a fold, 1 to 10. The
    files list all pairs of one kind before those of the other. Verification needs ten
    consecutive folds, so the pairs are reordered to give each fold its share of both.
    """
    kinds: tuple[list, list] = ([], [])
    for i in range(0, len(rows), 2):
        number, one = rows[i]
        other = rows[i + 1][1] if i + 1 < len(rows) else []
        good = len(one) == 2 and one[1:] == other[1:] and one[1].isdecimal()
        rule = f"{path}, line {number}: expected a pair, two lines 'image number' with "
        rule += "the same number (0: two people, 1 or more: one person)"
        require(good, rule, first=repr(one)[:60], second=repr(other)[:60])
        fold = int(one[1])
        kinds[fold > 0].append((fold, one[0], other[0]))
    for kind in kinds:
        kind.sort(key=lambda pair: pair[0])
    for fold in range(_FOLDS):
        for kind in kinds:
            begin, end = (len(kind) * (fold + i) // _FOLDS for i in (0, 1))
            for number, first, second in kind[begin:end]:
                yield first, second, number > 0


def _pair_files(fields: list[str]) -> tuple[str, str, bool]:
    if len(fields) == 3 and fields[2] in ("0", "1") and not fields[1].isdecimal():
        return fields[0], fields[1], fields[2] == "1"
    same = len(fields) == 3
    first, i, second, j = (*fields[:2], fields[0], fields[2]) if same else fields
    named = first and second and "\0" not in first + second
    if not named or not all(n.isdecimal() and len(n) <= 18 for n in (i, j)):
        raise ValueError("no names and numbers of images")
    left, right = f"{first}_{int(i):04d}.jpg", f"{second}_{int(j):04d}.jpg"
    return f"{first}/{left}", f"{second}/{right}", same


def _images_folder(path: str, file: str) -> str:
    """Returns the text file's folder, or its subfolder that has the first image."""
    folder = path.rpartition("/")[0] or "."
    below = [name for name in paths.listing(folder) if name.endswith("/")]
    for candidate in [folder, *(paths.join(folder, name[:-1]) for name in below)]:
        if files.exists(paths.join(candidate, file)):
            return candidate
    return folder


def write_bin(path: str, pairs: Pairs) -> int:
    """Writes a .bin: a pickle of (list of encoded images, list of bools).

    Images 2i and 2i + 1 are pair i, see insightface's lfw2pack.py. The bytes of the
    images are not changed; an image in several pairs is written once.

    Args:
        path: path of the new file.
        pairs: a verification set with encoded images.

    Returns:
        The number of bytes written.

    Raises:
        FileExistsError: the file exists.
        ValueError: the images are not encoded.
    """
    encoded = not isinstance(pairs.images, np.ndarray)
    rule = "A .bin file can hold only encoded images (JPEG, PNG), not arrays of pixels"
    require(encoded, rule, "Encode them first", name=pairs.name)
    for image, place in itertools.zip_longest(pairs.images, pairs.files):
        # A list could name a private file of the user, who may publish the .bin.
        rule = f"{place or path} must be a JPEG, PNG or GIF"
        require(num_pixels(image), rule, begins=bytes(image[:8]))
    outputs.require_absent(path)
    rows = np.stack([pairs.left, pairs.right], axis=1).reshape(-1).tolist()
    content = ([pairs.images[row] for row in rows], pairs.same.tolist())
    data = pickle.dumps(content, protocol=_PICKLE_PROTOCOL)
    files.make_dirs(files.parent(path))
    outputs.create(path, data)
    return len(data)
