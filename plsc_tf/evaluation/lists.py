"""Reads lists of pairs, galleries, probes and templates, and saved embeddings.

This module does not import TensorFlow.
"""

import collections
import io
from collections.abc import Callable, Sequence

import numpy as np

from plsc_tf.requirements import prefix_errors, require
from plsc_tf.storage import arrays


def _rows(text: bytes, path: str, form: str, parse: Callable, separator=None) -> list:
    """Parses the fields of each nonempty line.

    A line with tabs and too many fields is split at tabs only, because its names may
    contain spaces.

    Args:
        text: content of the file.
        path: path of the file, for error messages.
        form: example line that names the fields, for their number and error messages.
        parse: callable, fields -> parsed row; raises ValueError for invalid fields.
        separator: field separator; extra fields are ignored. None splits at whitespace
            and allows no extra fields.

    Raises:
        ValueError: a line has invalid fields; the message contains the line number.
    """
    rows, width = [], len(form.split(separator))
    for number, line in enumerate(_decoded(text, path), 1):
        fields = line.split(separator)[: width if separator else None]
        if len(fields) > width and "\t" in line:
            fields = [part.strip() for part in line.split("\t") if part.strip()]
        if not line.strip():
            continue
        try:
            if len(fields) != width:
                raise ValueError
            rows.append(parse(fields))
        except (ValueError, OverflowError) as error:
            received = " ".join(fields)[:80]
            raise ValueError(
                f"{path}, line {number}: expected '{form}'. Received: {received!r}."
            ) from error
    require(rows, f"{path} is empty. Expected '{form}' on each line")
    return rows


def read_pair_list(text: bytes, path: str, with_groups: bool = False) -> tuple:
    """Reads "left right same" lines; same is 1 or 0.

    Names may contain spaces if tabs separate the fields.

    Args:
        text: content of the file.
        path: path of the file, for error messages.
        with_groups: whether the lines end with the pair's group.

    Returns:
        (names, left, right, same, groups): the names in order of first appearance,
        int64 `[pairs]` indices into the names, bool `[pairs]`, and a list of text.

    Raises:
        ValueError: a line has invalid fields; the message contains the line number.
    """
    numbers, groups = {}, []

    def parse(fields):
        same = ("0", "1").index(fields[2])
        groups.extend(fields[3:])
        return *(numbers.setdefault(x, len(numbers)) for x in fields[:2]), same

    form = "left right 1-or-0" + " group" * with_groups
    left, right, same = np.array(_rows(text, path, form, parse)).T
    return tuple(numbers), left, right, same == 1, groups


def read_identity_list(text: bytes, path: str) -> tuple:
    """Reads a gallery's or the probes' "name identity" lines.

    Names may contain spaces if tabs separate the fields.

    Returns:
        (names, identities), two tuples of strings.

    Raises:
        ValueError: a line has invalid fields; the message contains the line number.
    """
    return tuple(zip(*_rows(text, path, "name identity", tuple), strict=True))


def read_names(text: bytes, path: str) -> tuple:
    """Reads the names of saved embeddings, one per line; extra words are ignored.

    If the name contains spaces, a tab must follow it.

    Raises:
        ValueError: a name occurs twice.
    """
    names = []
    for line in _decoded(text, path):
        fields = line.split("\t") if "\t" in line else line.split()
        names += [field.strip() for field in fields if field.strip()][:1]
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path} contains {twice[0]!r} twice. Names must be unique.")
    return tuple(names)


def read_labels(text: bytes, path: str, count: int) -> tuple:
    """Reads a label for each row of saved embeddings, one per line.

    Returns:
        (the different labels in order of first appearance; int64 `[count]`, the number
        of each row's label).

    Raises:
        ValueError: a line is empty, or the number of lines is not `count`.
    """
    labels, numbers = [line.strip() for line in _decoded(text, path)], {}
    rule = f"{path} must have {count} lines that are not empty, one for each embedding"
    good = len(labels) == count and all(labels)
    require(good, rule, lines=len(labels), empty=labels.count(""))
    rows = np.array([numbers.setdefault(label, len(numbers)) for label in labels])
    return tuple(numbers), rows


def read_template_media(text: bytes, path: str) -> tuple:
    """Reads IJB's face_tid_mid.txt: "image template media" lines.

    Returns:
        (image names, template ids, media ids): a tuple of strings and two int64
        `[images]` arrays.

    Raises:
        ValueError: a line has invalid fields; the message contains the line number.
    """
    form = "image template media"
    rows = _rows(text, path, form, lambda row: (row[0], *map(np.int64, row[1:])))
    names, *ids = zip(*rows, strict=True)
    return names, *map(np.array, ids)


def read_template_pairs(text: bytes, path: str) -> tuple:
    """Reads IJB's template_pair_label.txt: "template template same" lines.

    IJB-C has 15.7 million such lines.

    Returns:
        (left, right, same): int64 `[pairs]` template ids and bool `[pairs]`.

    Raises:
        ValueError: a line has invalid fields.
    """
    expected = f"{path}: expected 'template template label' lines, label 1 or 0"
    require(text.strip(), f"{expected}. Received an empty file")
    with prefix_errors(expected):
        whole = np.loadtxt(io.BytesIO(text), np.int64, None, ndmin=2)
    fits = whole.shape[1] == 3 and np.isin(whole[:, 2], (0, 1)).all()
    require(fits, f"{expected}. Received other values")
    return whole[:, 0], whole[:, 1], whole[:, 2] == 1


def read_subjects(text: bytes, path: str) -> tuple:
    """Reads IJB's gallery and probe files: a header, then "template,subject,..." lines.

    A template has one line per image; all of them must name the same subject.

    Returns:
        (templates, subjects): int64 `[templates]`, sorted by template.

    Raises:
        ValueError: a line has invalid fields (the message contains the line number),
            or a template has several subjects.
    """
    first, _, rest = text.partition(b"\n")
    if not first.split(b",")[0].strip().lstrip(b"-").isdigit():
        text = b"\n" + rest
    rows = _rows(text, path, "template,subject", lambda row: [*map(np.int64, row)], ",")
    templates, subjects = np.unique(rows, axis=0).T
    twice = templates[1:][np.diff(templates) == 0]
    if len(twice):
        raise ValueError(f"{path}: template {twice[0]} has several subjects.")
    return templates, subjects


def read_rows(path: str) -> np.ndarray:
    """Returns the rows in a .npy file; a local file is memory-mapped.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file does not contain floats `[n, size]`.
    """
    rows = arrays.read(path)
    good = rows.ndim == 2 and rows.dtype.char in "efd" and rows.size
    rule = f"{path} must contain floats of shape [n, embedding_size], of 16 to 64 bits"
    require(good, rule, dtype=rows.dtype, shape=rows.shape)
    return rows


def positions(
    wanted: Sequence[str], known: Sequence[str], path: str, advice: str = ""
) -> np.ndarray:
    """Returns the place of each wanted name among the known ones, int `[wanted]`.

    Raises:
        ValueError: `path`, which lists the known names, lacks a wanted one; `advice`,
            after a space, says what to do.
    """
    places = {name: place for place, name in enumerate(known)}
    if missing := [name for name in wanted if name not in places]:
        raise ValueError(
            f"{path} lacks {len(missing)} of {len(wanted)} images, such as "
            f"{missing[0]!r}. It contains {len(known)}, such as {known[0]!r}.{advice}"
        )
    return np.array([places[name] for name in wanted])


def _decoded(text, path):
    with prefix_errors(f"{path} is not UTF-8 text"):
        return text.decode("utf-8-sig").splitlines()  # editors may add a mark
