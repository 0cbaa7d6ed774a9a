"""Finds wrong labels from embeddings; reports them as JSON and sheets."""

import collections
import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import reader
from plsc_tf.data import contact_sheet, images as data_images
from plsc_tf.data.checks import report as check_report
from plsc_tf.data.source import IndexedSource, Source, dense
from plsc_tf.evaluation import bootstrap, embedding_store, label_noise
from plsc_tf.jobs import trained
from plsc_tf.jobs.classes.rows import embeddings
from plsc_tf.jobs.training_data import TrainingData
from plsc_tf.options import effects
from plsc_tf.options.settings import Settings
from plsc_tf.requirements import require
from plsc_tf.storage import files, outputs

# Deviations by which two groups of a class must be less alike than usual to count as
# two classes.
_SPLIT = 6.0
# Maximum number of findings per kind in the report, and on a sheet.
_LISTED, _ROWS = 200, 30
# Most classes of a checkpoint without a head.
_MOST_CLASSES = 1_000_000
# Images per class on a sheet, and their (height, width).
_IMAGES, _SIZE = 5, (56, 56)
# The rows of the table, formatted with the content of the JSON report.
_TABLE = {
    "checkpoint": "{checkpoint}",
    "data set": "{data_set}",
    "images": "{pictures:,}",
    "classes": "{classes:,}, {classes_without_pictures:,} of them without an image",
    "two classes, one identity": "{near_duplicates[count]:,} pairs "
    "(similarity of {thresholds[pair]:g} or more)",
    "mislabelled images": "{mislabelled[count]:,} "
    "(nearer to another center by {thresholds[margin]:g}; "
    "{mislabelled[nearer_to_another_center]:,} nearer at all; "
    "{mislabelled[not_judged]:,} not judged)",
    "one class, two identities": "{two_in_one[count]:,} "
    "(score {thresholds[split]:g} or more; {two_in_one[not_judged]:,} not judged)",
}


@dataclasses.dataclass(frozen=True)
class NoiseFindings:
    """The labels that look wrong.

    Attributes:
        store: the `EmbeddingStore`.
        pairs: similar classes, see `closest_pairs`.
        duplicates: number of these pairs that seem to be one identity.
        identities: int `[classes]`, the same number for classes that these pairs
            connect.
        nearest: all images, see `nearest_centers`.
        mislabelled: bool `[images]`, whether the label looks wrong.
        splits: all classes that can be split, see `split_classes`.
        sides: int8 `[images]`, the groups of these classes.
    """

    store: embedding_store.EmbeddingStore
    pairs: np.recarray
    duplicates: int
    identities: np.ndarray
    nearest: np.recarray
    mislabelled: np.ndarray
    splits: np.recarray
    sides: np.ndarray


class _Finding(NamedTuple):
    """One finding.

    Attributes:
        values: JSON values. "found" is whether the finding exceeds its threshold; if
            it's missing, it does.
        title: the classes and the score, for the sheet.
        groups: groups of image indices, for the sheet.
    """

    values: dict
    title: str
    groups: Sequence


def report(settings: Settings) -> list[tuple[str, str]]:
    """Embeds the training images and reports labels that look wrong.

    Args:
        settings: the `Settings`; `classes` names the outputs, `checkpoints` names the
            checkpoint, and `dataset` names the training data.

    Returns:
        Table rows.

    Raises:
        FileExistsError: new_list already exists.
        FileNotFoundError: the checkpoint, the data set or the report's folder does not
            exist.
        ValueError: a label is not one of the checkpoint's classes, new_list is set and
            the data set's images are not files, or the checkpoint has too many classes.
    """
    options = settings.classes
    path, content, settings, _ = trained.open_checkpoint(settings)
    # Without a head, whose size was compared, any number of classes could be claimed.
    classes, head = content["state"]["num_classes"], content["arrays"]
    rule = f"{path} has no head, so it may have at most {_MOST_CLASSES:,} classes"
    require(head or classes <= _MOST_CLASSES, rule, num_classes=classes)
    reader.check_sizes(path, content)
    training_data = TrainingData(settings, content["state"])
    training_data.require_labels(strict=True)
    check_report.check_output(options.noise_report, "noise_report")
    # People look at the sheets, and then edit the list of classes to merge.
    outputs.require_absent(f"{options.noise_report.removesuffix('.json')}.merge.txt")
    if sheets := options.noise_sheets:
        outputs.require_closed(sheets, allow_siblings=True)
    new_list, listing = options.new_list, training_data.open_listing
    check_report.check_output(new_list, "new_list", listing)
    source = training_data.source
    effects.log_unused(settings, effects.data_facts(source.used_fields))
    folder = files.parent(options.noise_report)
    scratch = folder if files.is_local(folder) else None
    with tempfile.TemporaryDirectory(prefix="noise-", dir=scratch or None) as place:
        size = content["state"]["embedding_size"]
        store = embedding_store.EmbeddingStore(place, classes, size)
        for rows, labels in embeddings(settings, path, source):
            store.add(rows, labels)
        store.finish()
        logging.info("Embedded %s images.", f"{len(store.labels):,}")
        findings = find(store, options)
        facts = {"checkpoint": path, "data_set": source.name}
        table = _write_report(options, findings, source, facts)
        if new_list:
            labels = np.where(findings.mislabelled, -1, store.labels)
            table.append(training_data.write_list(new_list, lambda k, _: labels[k]))
    return table


def find(store, options):
    """Finds labels that look wrong.

    Args:
        store: the `EmbeddingStore`.
        options: the `Classes` settings.

    Returns:
        `NoiseFindings`.
    """
    pairs = label_noise.closest_pairs(store)
    duplicates = pairs[pairs.similarity >= options.noise_pair]
    first, second = duplicates.first, duplicates.second
    identities = bootstrap.linked(store.num_classes, first, second)
    nearest = label_noise.nearest_centers(store, identities)
    mislabelled = nearest.excess > options.noise_margin  # False for NaN
    classes = pairs, len(duplicates), identities
    split = label_noise.split_classes(store, ~mislabelled)
    return NoiseFindings(store, *classes, nearest, mislabelled, *split)


def _write_report(options, findings, source: Source, facts) -> list[tuple[str, str]]:
    """Writes the report as JSON, the sheets, and a list of classes to merge.

    Args:
        options: the `Classes` settings; noise_report names the JSON file, and the
            .merge.txt file is next to it.
        findings: the `NoiseFindings`.
        source: the images' `Source`.
        facts: `{"checkpoint", "data_set"}`.

    Returns:
        Table rows.
    """
    names = getattr(source, "class_names", ())
    store, excess, splits = findings.store, findings.nearest.excess, findings.splits
    lists = {
        "near_duplicates": list(_pairs(findings, names)),
        "mislabelled": list(_mislabelled(findings, source, names)),
        "two_in_one": list(_splits(findings, source, names)),
    }
    wrong = {"count": findings.mislabelled, "nearer_to_another_center": excess > 0}
    wrong["not_judged"] = np.isnan(excess)
    thresholds = {"pair": options.noise_pair, "margin": options.noise_margin}
    content = {
        "version": 1,
        **facts,
        "thresholds": {**thresholds, "split": _SPLIT},
        "pictures": len(store.labels),
        "classes": store.num_classes,
        "classes_without_pictures": int(np.count_nonzero(store.counts == 0)),
        "near_duplicates": {"count": findings.duplicates},
        "mislabelled": {key: int(np.count_nonzero(x)) for key, x in wrong.items()},
        "two_in_one": {
            "count": int(np.count_nonzero(splits.score > _SPLIT)),
            "not_judged": store.num_classes - len(splits),
        },
    }
    table = [(name, text.format(**content)) for name, text in _TABLE.items()]
    for kind, listed in lists.items():
        content[kind]["listed"] = [one.values for one in listed]
    path = options.noise_report
    check_report.write_report(path, content)
    table.append(("report", path))
    if groups := _merges(findings.identities):
        merged = f"{path.removesuffix('.json')}.merge.txt"
        lines = "".join(f"{' '.join(map(str, group))}\n" for group in groups)
        files.replace(merged, lines.encode())
        table.append(("to merge them", f"--edit_dir=<new> --merge_classes={merged}"))
    if options.noise_sheets:
        table += _draw_sheets(options.noise_sheets, lists, source)
    return table


def _merges(identities):
    """Returns lists of the classes that seem to be one identity."""
    groups = collections.defaultdict(list)
    for label in np.flatnonzero(np.bincount(identities)[identities] > 1).tolist():
        groups[identities[label]].append(label)
    return list(groups.values())


def _pairs(findings, names) -> Iterator[_Finding]:
    """Yields pairs of similar classes."""
    store = findings.store
    for k, (a, b, similarity) in enumerate(findings.pairs[:_LISTED].tolist()):
        values = {
            "classes": [a, b],
            "names": [names[a], names[b]] if names else None,
            "pictures": store.counts[[a, b]].tolist(),
            "alike": round(similarity, 4),
            "found": k < findings.duplicates,
        }
        groups = _members(store, a), _members(store, b)
        yield _Finding(values, f"{a} = {b}\n{similarity:.3f}", groups)


def _mislabelled(findings, source, names) -> Iterator[_Finding]:
    """Yields images that are nearer to another class's center."""
    store, nearest = findings.store, findings.nearest
    numbers = np.flatnonzero(findings.mislabelled)
    numbers = numbers[np.argsort(-nearest.excess[numbers], kind="stable")][:_LISTED]
    for number in numbers.tolist():
        label = store.labels[number]
        cosine, there, excess, other = nearest[number]
        values = {
            "number": number,
            "picture": source.describe(number),
            "label": int(label),
            "nearer_to": int(other),
            "names": [names[label], names[other]] if names else None,
            "cosine": round(float(cosine), 4),
            "cosine_there": round(float(there), 4),
        }
        groups = [number], _members(store, label, number), _members(store, other)
        yield _Finding(values, f"{label} -> {other}\n{excess:.3f}", groups)


def _splits(findings, source, names) -> Iterator[_Finding]:
    """Yields classes whose images form two groups."""
    for label, alike, score in findings.splits[:_LISTED].tolist():
        images = np.flatnonzero(findings.store.labels == label)
        groups = [images[findings.sides[images] == side].tolist() for side in (1, 2)]
        values = {
            "class": label,
            "name": names[label] if names else None,
            "sizes": list(map(len, groups)),
            "alike": round(alike, 4),
            "score": round(score, 2),
            "found": score > _SPLIT,
            "pictures": [list(map(source.describe, group[:3])) for group in groups],
        }
        title = f"{label} ({len(groups[0])} + {len(groups[1])})"
        yield _Finding(values, f"{title}\n{score:.1f}", groups)


def _members(store, label, without=-1):
    """Returns the indices of a class's first images, except `without`."""
    numbers = np.flatnonzero(store.labels == label)[: _IMAGES + 1]
    return numbers[numbers != without][:_IMAGES]


def _draw_sheets(folder, lists, source):
    """Draws the images of the first findings side by side; returns table rows."""
    if not isinstance(source, IndexedSource):
        return [("sheets", f"none: {source.name} can only be read in order")]
    files.make_dirs(folder)
    table = []
    for kind, listed in lists.items():
        shown = [one for one in listed if one.values.get("found", True)][:_ROWS]
        rows = [(one.title, _images(source, one.groups)) for one in shown]
        if rows:
            path = files.join(folder, f"{kind}.png")
            contact_sheet.draw(path, rows)
            table.append(("sheet", f"{path}: {len(rows)} of {kind}"))
    return table


def _images(source, groups):
    """Returns the images of all groups, each group padded to the same width."""
    gap, row = np.full((*_SIZE, 3), 255, np.uint8), []
    for numbers in groups:
        for number in numbers[:_IMAGES]:
            block = source.read({"index": tf.constant([number], tf.int64)})
            image = data_images.to_rgb(dense(block["image"][0]))
            row.append(data_images.resize(image, _SIZE).numpy())
        row += [gap] * (_IMAGES + 1 - len(numbers[:_IMAGES]))
    return row[:-1]
