"""Text files that say what to compare with what. No TensorFlow."""

import io

import numpy as np

from plsc_tf.evaluation.templates import TemplateMedia


def _lines(text, path, most=None):
    """Yields (number, fields) of the lines that are not empty.

    A line with tabs and more than `most` fields is split at the tabs only, so that
    names may hold blanks.
    """
    try:
        text = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8 ({error}).") from error
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if most is not None and len(fields) > most and "\t" in line:
            parts = [part.strip() for part in line.split("\t")]
            fields = [part for part in parts if part]
        if fields:
            yield number, fields


def read_pair_list(text, path):
    """Reads "left right same" lines, same being 1 or 0.

    Here and for the next two, names may hold blanks when tabs separate the fields.

    Args:
        text: bytes of the file.
        path: of the file, for messages.

    Returns:
        (names in order of their first appearance, left, right, same): int64 [pairs]
        positions in the names, and bool [pairs].

    Raises:
        ValueError: a line is something else; its number is told.
    """
    numbers, left, right, same = {}, [], [], []
    for number, fields in _lines(text, path, most=3):
        if len(fields) != 3 or fields[2] not in ("0", "1"):
            raise _bad(path, number, "'left right 1' or 'left right 0'", fields)
        left.append(numbers.setdefault(fields[0], len(numbers)))
        right.append(numbers.setdefault(fields[1], len(numbers)))
        same.append(fields[2] == "1")
    if not left:
        raise ValueError(f"{path} is empty. Expected one pair per line.")
    return tuple(numbers), np.array(left), np.array(right), np.array(same)


def read_identity_list(text, path):
    """Reads "name identity" lines, of a gallery or of probes.

    Returns:
        (names, identities), tuples of texts.

    Raises:
        ValueError: a line is something else; its number is told.
    """
    names, identities = [], []
    for number, fields in _lines(text, path, most=2):
        if len(fields) != 2:
            raise _bad(path, number, "'name identity'", fields)
        names.append(fields[0])
        identities.append(fields[1])
    if not names:
        raise ValueError(f"{path} is empty. Expected one 'name identity' per line.")
    return tuple(names), tuple(identities)


def read_names(text, path):
    """Reads the names of saved embeddings, one per line; a further word is dropped.

    A tab ends a name that holds blanks.

    Returns:
        tuple of texts.

    Raises:
        ValueError: a name comes twice.
    """
    names = tuple(fields[0] for _, fields in _lines(text, path, most=1))
    if len(set(names)) != len(names):
        seen = set()
        twice = next(name for name in names if name in seen or seen.add(name))
        raise ValueError(f"{path} names {twice!r} twice. Names must differ.")
    return names


def read_template_media(text, path):
    """Reads IJB's face_tid_mid.txt: "picture template media" lines.

    Returns:
        A `TemplateMedia`.

    Raises:
        ValueError: a line is something else; its number is told.
    """
    names, ids = [], []
    for number, fields in _lines(text, path):
        if len(fields) != 3 or not all(_whole(field) for field in fields[1:]):
            raise _bad(path, number, "'picture template media'", fields)
        names.append(fields[0])
        ids.append((int(fields[1]), int(fields[2])))
    if not names:
        raise ValueError(f"{path} is empty. Expected 'picture template media' lines.")
    templates, media = np.array(ids, np.int64).T
    return TemplateMedia(tuple(names), templates, media)


def read_template_pairs(text, path):
    """Reads IJB's template_pair_label.txt: "template template same" lines.

    IJB-C has 15.7 million of them.

    Returns:
        (left, right, same): int64 [pairs] template ids, bool [pairs].

    Raises:
        ValueError: a line is something else.
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


def read_subjects(text, path):
    """Reads IJB's gallery and probe files: a header, then "template,subject,..." lines.

    A template has a line for each of its pictures; all must name one subject.

    Returns:
        (templates, subjects): int64 [templates], ascending templates.

    Raises:
        ValueError: a line is something else; its number is told.
    """
    subject_of = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        fields = [field.strip() for field in line.split(",")]
        if not line.strip() or (number == 1 and not _whole(fields[0])):
            continue
        if len(fields) < 2 or not (_whole(fields[0]) and _whole(fields[1])):
            raise _bad(path, number, "'template,subject'", [line])
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


def read_faces(text, path):
    """Reads IJB's name_5pts_score.txt: a picture, five points (x, y) and a score.

    Returns:
        (names, points, scores): tuple, float32 [pictures, 5, 2] in pixels, float32
        [pictures] of the detector.

    Raises:
        ValueError: a line is something else; its number is told.
    """
    names, numbers = [], []
    for number, fields in _lines(text, path):
        try:
            values = [float(field) for field in fields[1:]]
        except ValueError:
            values = []
        if len(values) != 11:
            raise _bad(path, number, "'picture x y x y x y x y x y score'", fields)
        names.append(fields[0])
        numbers.append(values)
    if not names:
        raise ValueError(f"{path} is empty. Expected a picture per line.")
    numbers = np.array(numbers, np.float32)
    return tuple(names), numbers[:, :10].reshape(-1, 5, 2), numbers[:, 10]


def _whole(text):
    return text.removeprefix("-").isdecimal()


def _bad(path, number, expected, fields):
    received = " ".join(fields)[:80]
    return ValueError(f"{path}, line {number}: expected {expected}. Got: {received!r}.")
