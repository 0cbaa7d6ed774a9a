"""Evaluation protocols: read a protocol's files and report on the set."""

import dataclasses
import fnmatch
import hashlib

import numpy as np
from absl import logging

from plsc_tf.evaluation import bootstrap, identification, lists, set_report
from plsc_tf.evaluation.set_report import SetReport
from plsc_tf.evaluation.templates import find, pool
from plsc_tf.evaluation.verification import FOLDS, People, score
from plsc_tf.jobs.embed import image_list
from plsc_tf.jobs.evaluate.embeddings import gathered
from plsc_tf.requirements import require
from plsc_tf.storage import files

FOLDERS = "identities are drawn; they are the folders of the images"
LINKED = (
    "identities are drawn; the set does not name them, so images are one identity "
    "where pairs of the same person link them, which may make intervals too narrow"
)
_MOST_GROUPS, _MOST_LISTS = 1_000, 4
# The value of the option groups for which pairs have groups of their own.
OWN = "pairs"
# TinyFace's folders.
TINYFACE = ("Gallery_Match", "Gallery_Distractor", "Probe")
SUBJECTS = "identities are drawn; they are the subjects of the 1:N lists"


def people_of(names, sides, same, groups="", own=()):
    """Determines the `People` of pairs.

    Identities are the images' folders if these are consistent with every pair;
    otherwise, same pairs link images of one identity.

    Args:
        names: the images' names, or () if they have none.
        sides: int `[2, pairs]`, image indices.
        same: bool `[pairs]`, whether both images show one identity.
        groups: see `groups_of`; "pairs" for the pairs' own groups; "" for none.
        own: the pairs' own groups; () if they have none, as in verification sets.
    """
    folders = np.array([files.parent(name) for name in names], object)
    numbers, basis = np.unique(folders, return_inverse=True)[1], FOLDERS
    if not names or not np.array_equal(np.equal(*numbers[sides]), same):
        numbers, basis = bootstrap.linked(sides.max() + 1, *sides[:, same]), LINKED
    groups_in = np.array([own, own], object) if own else None
    if groups not in ("", OWN):
        groups_in = groups_of(names, groups)[sides]
    count = len({*groups_in.flat}) if groups_in is not None else 0
    rule = f"There may be at most {_MOST_GROUPS:,} groups, as each takes a while"
    require(count <= _MOST_GROUPS, rule, groups=count)
    return People(numbers[sides], basis, groups_in)


def groups_of(names, path):
    """Returns the group of each image, objects `[images]`; "" if it is unknown.

    Args:
        names: the images' names.
        path: file with lines "image group" or "identity group", where the identity is
            the folder of its images; or "folders" for names group/identity/image.

    Raises:
        ValueError: no image has a group, or a line has invalid fields.
    """
    folders = [("", "", *name.split("/"))[-3:-1] for name in names]
    found = [group for group, _ in folders]
    if path != "folders":
        listed = lists.read_identity_list(files.read(path), path)
        group_of = dict(zip(*listed, strict=True))
        twice = [n for n, group in zip(*listed, strict=True) if group_of[n] != group]
        rule = f"{path} must name only one group of each image or person"
        require(not twice, rule, several_groups=f"{twice[:1]}")
        for row, (name, (_, folder)) in enumerate(zip(names, folders, strict=True)):
            keys = name, name.rpartition("/")[0], folder
            found[row] = next((group_of[key] for key in keys if key in group_of), "")
    rule = f"groups={path} must give groups to images, by name or folder"
    require(any(found), rule, image=repr(names[0].rstrip("/")) if names else "no names")
    if count := found.count(""):
        logging.info("%s gives no group to %d of %d names.", path, count, len(found))
    return np.array(found, object)  # text of any length


def pair_list(path, source, folder, options, groups=""):
    """Verifies the pairs of a list.

    Args:
        path: path of the list; see `lists.read_pair_list`.
        source: `Pictures` or `Saved`.
        folder: folder that the names are relative to.
        options: the report's `Options`.
        groups: see `people_of`.

    Returns:
        (`SetReport`, names, `PairScores`, `People`).
    """
    text = files.read(path)
    names, left, right, same, own = lists.read_pair_list(text, path, groups == OWN)
    rule = f"{path} must contain at least {FOLDS} pairs"
    require(len(same) >= FOLDS, rule, pairs=len(same))
    keys = np.minimum(left, right) * len(names) + np.maximum(left, right)
    both = len(np.intersect1d(keys[same], keys[~same]))
    _warn(np.count_nonzero(left == right), f"pairs of {path} have twice the same image")
    _warn(both, f"pairs of {path} are of the same person and of different people")
    embeddings, norms = gathered(source.blocks(names, folder), np.float64)
    scores = score(embeddings, left, right, same)
    scores = dataclasses.replace(scores, norms=norms[scores.sides])
    people = people_of(names, scores.sides, same, groups, own)
    report = set_report.of_pairs(_name(path), scores, people, options)
    report.sha256 = hashlib.sha256(text).hexdigest()
    return report, names, scores, people


def _warn(count, what):
    if count:
        logging.warning("%d %s: the results may be biased.", count, what)


def search(gallery: str, probes: str, source, folder: str, options) -> SetReport:
    """Searches a gallery for the identities of a list of probes.

    Args:
        gallery: path of the gallery's list; see `lists.read_identity_list`.
        probes: path of the probes' list.
        source: `Pictures` or `Saved`.
        folder: folder that the names are relative to; "" means each list's folder.
        options: the report's `Options`.
    """
    digest, sides, listed = hashlib.sha256(), [], set()
    for path in (gallery, probes):
        text = files.read(path)
        digest.update(hashlib.sha256(text).digest())
        names, identities = lists.read_identity_list(text, path)
        below = folder or files.parent(path)
        paths = {files.join(below, name) for name in names}
        _warn(len(listed & paths), f"images are both in {gallery} and in {probes}")
        listed = paths
        embeddings, _ = gathered(source.blocks(names, below))
        # In an array of texts, each would take the memory of the longest one.
        sides += [embeddings, np.array(identities, object)]
    return _search(_name(probes), sides, options, digest)


def tinyface(folder: str, source, options) -> SetReport:
    """Runs TinyFace's protocol (Cheng, Zhu, Gong, ACCV 2018): 1:N with distractors.

    A file's name starts with the number of its identity. Ranks count gallery images, as
    in the authors' and AdaFace's code.

    Args:
        folder: Testing_Set/, or a folder with the same structure and aligned images.
        source: `Pictures` or `Saved`.
        options: the report's `Options`.

    Raises:
        FileNotFoundError: a folder is missing or contains no images.
        ValueError: a file's name doesn't start with a number.
    """
    digest, sides = hashlib.sha256(), []
    for part in TINYFACE:
        below = files.join(folder, part)
        listed = files.list_dir(below)
        listed = [x for x in listed if x.lower().endswith((".jpg", ".jpeg", ".png"))]
        require(listed, f"{below!r} contains no images", raises=FileNotFoundError)
        names = [f"{part}/{name}" for name in listed]
        identities = names  # every distractor is a different person
        if part != "Gallery_Distractor":
            identities = [_identity(name) for name in listed]
        digest.update("".join(f"{name}\n" for name in names).encode())
        sides.append((gathered(source.blocks(names, folder))[0], identities))
    (matches, match_ids), (others, other_ids), (probes, probe_ids) = sides
    gallery = np.concatenate([matches, others])
    # In an array of texts, each would take the memory of the longest one.
    ids = np.array([*match_ids, *other_ids, *probe_ids], object)
    sides = gallery, ids[: len(gallery)], probes, ids[len(gallery) :]
    return _search("TinyFace", sides, options, digest, by_entry=True)


def _search(name, sides, options, digest, by_entry=False):
    result = identification.search(*sides, by_entry=by_entry)
    report = set_report.of_search(name, result, sides[-1], options)
    report.counts["gallery entries"] = len(sides[0])
    report.sha256 = digest.hexdigest()
    return report


def _identity(name):
    number = name.partition("_")[0]
    rule = "Names of TinyFace's images must start with the number of the identity"
    require(number.isdecimal(), rule, "Name them as in 12_3.jpg", name=name)
    return number


def templates(folder, source, options):
    """Runs the protocols for a folder in IJB's file formats.

    Images are weighted by the detector's scores, if they are available.

    Args:
        folder: folder with meta/ and, for images, loose_crop/.
        source: `Pictures` or `Saved`.
        options: the report's `Options`.

    Yields:
        A `SetReport` on the template pairs, and one on each combination of gallery and
        probe list.
    """
    meta = files.join(folder, "meta")
    listed = files.list_dir(meta)
    media_path = _only(meta, listed, "*_face_tid_mid.txt")
    prefix = files.name(media_path).removesuffix("_face_tid_mid.txt")
    text = files.read(media_path)
    digest = hashlib.sha256(hashlib.sha256(text).digest())
    names, ids, media = lists.read_template_media(text, media_path)
    points, weights = _faces(meta, listed, names)
    blocks = source.blocks(names, files.join(folder, "loose_crop"), points)
    ids, rows = pool((block for block, _ in blocks), ids, media, weights)
    galleries, probes = (_subjects(meta, listed, kind) for kind in ("gallery", "probe"))
    subjects = {}
    for side in (*galleries.values(), *probes.values()):
        subjects |= dict(zip(*(column.tolist() for column in side), strict=True))
    pairs_path = _only(meta, listed, "*_template_pair_label.txt")
    report = _template_pairs(prefix, pairs_path, ids, rows, subjects, options)
    report.counts["pictures"] = len(names)
    digest.update(bytes.fromhex(report.sha256))
    report.sha256 = digest.hexdigest()
    yield report
    for label, (known, known_ids) in galleries.items():
        gallery = rows[find(ids, known, label)]
        for probe_label, (searched, probe_ids) in probes.items():
            found = rows[find(ids, searched, probe_label)]
            suffix = f" {probe_label}" if len(probes) > 1 else ""
            sides = gallery, known_ids, found, probe_ids
            yield _search(f"{prefix} {label}{suffix}", sides, options, digest)


def _template_pairs(name, path, ids, rows, subjects, options):
    text = files.read(path)
    left, right, same = lists.read_template_pairs(text, path)
    left, right = find(ids, left, path), find(ids, right, path)
    rule = f"{path} must contain pairs with label 1 (same person) and with label 0"
    require(same.any() and not same.all(), rule, only_label=int(same[0]))
    numbers = np.array([subjects.get(one, -1) for one in ids.tolist()])
    if (numbers[np.unique(np.concatenate([left, right]))] >= 0).all():
        numbers, basis = np.unique(numbers, return_inverse=True)[1], SUBJECTS
    else:
        numbers = bootstrap.linked(len(ids), left[same], right[same])
        basis = LINKED.replace("images", "templates")
    scores = score(rows, left, right, same, folds=2)
    people = People(numbers[scores.sides], basis)
    scores = dataclasses.replace(scores, norms=None, embeddings=None)
    report = set_report.of_pairs(name, scores, people, options, kind="templates")
    report.counts["templates"] = len(ids)
    report.sha256 = hashlib.sha256(text).hexdigest()
    return report


def _faces(meta, listed, names):
    """Reads the images' points and detector scores; (None, None) without a file."""
    if not fnmatch.filter(listed, "*_name_5pts_score.txt"):
        return None, None
    return image_list.points_of(names, _only(meta, listed, "*_name_5pts_score.txt"))


def _subjects(meta, listed, kind):
    """Reads the 1:N lists of a kind as {label: (templates, subjects)}."""
    sides, names = {}, fnmatch.filter(listed, f"*_1N_{kind}_*.csv")
    rule = f"{meta} may have at most {_MOST_LISTS} lists of one kind"
    require(len(names) <= _MOST_LISTS, rule, lists=len(names))
    for name in names:
        path = files.join(meta, name)
        label = name.partition("_1N_")[2].removesuffix(".csv")
        sides[label] = lists.read_subjects(files.read(path), path)
    return sides


def _only(folder, listed, pattern):
    matching = fnmatch.filter(listed, pattern)
    rule = f"{folder!r} must contain exactly one file that matches {pattern!r}"
    require(len(matching) == 1, rule, raises=FileNotFoundError, files=matching)
    return files.join(folder, matching[0])


def _name(path):
    return files.name(path).rpartition(".")[0] or files.name(path)
