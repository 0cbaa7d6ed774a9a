"""Text files that list pairs, galleries, probes and templates. No TensorFlow."""

import collections
import io
from collections.abc import Callable

import numpy as np

from plsc_tf.evaluation.templates import TemplateMedia


def _rows(text: bytes, path: str, expected: str, width: int, parse: Callable) -> list:
    """What `parse` returns for the fields of each line that is not empty.

    A line with tabs and more than `width` fields is split at the tabs only, so that
    names may hold blanks.

    Args:
        text: of the file.
        path: of the file, for messages.
        expected: a line, for messages.
        width: number of fields; 0: any.
        parse: callable, fields -> anything; raises ValueError for other fields.

    Raises:
        ValueError: a line has other fields; the message has its number.
    """
    rows = []
    for number, line in enumerate(_decoded(text, path), 1):
        fields = line.split()
        if width and len(fields) > width and "\t" in line:
            fields = [part.strip() for part in line.split("\t") if part.strip()]
        if not fields:
            continue
        try:
            if width and len(fields) != width:
                raise ValueError
            rows.append(parse(fields))
        except ValueError as error:
            received = " ".join(fields)[:80]
            raise ValueError(
                f"{path}, line {number}: expected {expected}. Got: {received!r}."
            ) from error
    if not rows:
        raise ValueError(f"{path} is empty. Expected {expected} in each line.")
    return rows


def read_pair_list(text: bytes, path: str) -> tuple:
    """Reads "left right same" lines, same being 1 or 0.

    Here and for the next two, names may hold blanks when tabs separate the fields.

    Args:
        text: of the file.
        path: of the file, for messages.

    Returns:
        (names in order of their first appearance, left, right, same): int64 [pairs]
        positions in the names, and bool [pairs].

    Raises:
        ValueError: a line has other fields; the message has its number.
    """
    expected = "'left right 1' or 'left right 0'"
    same_of = {"0": False, "1": True}

    def parse(fields):
        if fields[2] not in same_of:
            raise ValueError
        return fields[0], fields[1], same_of[fields[2]]

    left, right, same = zip(*_rows(text, path, expected, 3, parse), strict=True)
    both = [name for pair in zip(left, right, strict=True) for name in pair]
    names = dict.fromkeys(both)
    numbers = {name: number for number, name in enumerate(names)}
    sides = (np.array([numbers[name] for name in side]) for side in (left, right))
    return tuple(names), *sides, np.array(same)


def read_identity_list(text: bytes, path: str) -> tuple:
    """Reads "name identity" lines, of a gallery or of probes.

    Returns:
        (names, identities), tuples of texts.

    Raises:
        ValueError: a line has other fields; the message has its number.
    """
    return tuple(zip(*_rows(text, path, "'name identity'", 2, tuple), strict=True))


def read_names(text: bytes, path: str) -> tuple:
    """Reads the names of saved embeddings, one per line; further words are ignored.

    A tab ends a name that holds blanks.

    Raises:
        ValueError: a name occurs twice.
    """
    names = []
    for line in _decoded(text, path):
        fields = line.split("\t") if "\t" in line else line.split()
        names += [field.strip() for field in fields if field.strip()][:1]
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path} names {twice[0]!r} twice. Names must differ.")
    return tuple(names)


def read_template_media(text: bytes, path: str) -> TemplateMedia:
    """Reads IJB's face_tid_mid.txt: "picture template media" lines.

    Raises:
        ValueError: a line has other fields; the message has its number.
    """
    rows = _rows(
        text,
        path,
        "'picture template media'",
        3,
        lambda fields: (fields[0], int(fields[1]), int(fields[2])),
    )
    names, templates, media = zip(*rows, strict=True)
    return TemplateMedia(names, np.array(templates), np.array(media))


def read_template_pairs(text: bytes, path: str) -> tuple:
    """Reads IJB's template_pair_label.txt: "template template same" lines.

    IJB-C has 15.7 million of them.

    Returns:
        (left, right, same): int64 [pairs] template ids, bool [pairs].

    Raises:
        ValueError: a line has other fields.
    """
    expected = f"{path}: expected 'template template label' lines, label 1 or 0."
    if not text.strip():
        raise ValueError(f"{path} is empty. Expected 'template template label' lines.")
    try:
        whole = np.loadtxt(io.BytesIO(text), np.int64, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{expected} {error}") from error
    if whole.shape[1] != 3 or not np.isin(whole[:, 2], (0, 1)).all():
        raise ValueError(f"{expected} Received others.")
    return whole[:, 0], whole[:, 1], whole[:, 2] == 1


def read_subjects(text: bytes, path: str) -> tuple:
    """Reads IJB's gallery and probe files: a header, then "template,subject,..." lines.

    A template has a line for each of its images; all must name one subject.

    Returns:
        (templates, subjects): int64 [templates], ascending templates.

    Raises:
        ValueError: a line has other fields; the message has its number.
    """
    subject_of = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        fields = [field.strip() for field in line.split(",")]
        if not line.strip() or (number == 1 and not _whole(fields[0])):
            continue
        if len(fields) < 2 or not (_whole(fields[0]) and _whole(fields[1])):
            raise ValueError(
                f"{path}, line {number}: expected 'template,subject'. Got: "
                f"{line[:80]!r}."
            )
        template, subject = int(fields[0]), int(fields[1])
        if subject_of.setdefault(template, subject) != subject:
            raise ValueError(
                f"{path}, line {number}: template {template} has subject {subject}, "
                f"but {subject_of[template]} before."
            )
    if not subject_of:
        raise ValueError(f"{path} is empty. Expected 'template,subject' lines.")
    templates = sorted(subject_of)
    return np.array(templates), np.array([subject_of[one] for one in templates])


def read_faces(text: bytes, path: str) -> tuple:
    """Reads IJB's name_5pts_score.txt: an image, five points (x, y) and a score.

    Returns:
        (names, points, scores): tuple, float32 [images, 5, 2] in pixels, float32
        [images] of the detector.

    Raises:
        ValueError: a line has other fields; the message has its number.
    """
    rows = _rows(
        text,
        path,
        "'picture x y x y x y x y x y score'",
        12,
        lambda fields: (fields[0], [float(field) for field in fields[1:]]),
    )
    names, numbers = zip(*rows, strict=True)
    numbers = np.array(numbers, np.float32)
    return names, numbers[:, :10].reshape(-1, 5, 2), numbers[:, 10]


def _decoded(text, path):
    try:
        return text.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error}).") from error


def _whole(text):
    return text.removeprefix("-").isdecimal()
