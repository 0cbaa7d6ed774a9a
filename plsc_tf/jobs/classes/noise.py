"""Finds wrong labels from embeddings; reports them as JSON and sheets."""

import dataclasses
import functools
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import manifest
from plsc_tf.data import contact_sheet, images as data_images
from plsc_tf.data.checks import report as check_report
from plsc_tf.data.source import IndexedSource, Source, dense
from plsc_tf.evaluation import embedding_store, label_noise
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import data
from plsc_tf.jobs.classes import images
from plsc_tf.options import effects
from plsc_tf.options.settings import Settings
from plsc_tf.storage import files, outputs

# Deviations by which two groups of a class must be less alike than usual to count as
# two classes.
_SPLIT = 6.0
# Maximum number of findings per kind in the report, and on a sheet.
_LISTED, _ROWS = 200, 30
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
        pairs: `Pairs` of classes, most similar first.
        duplicates: the pairs that seem to be one identity.
        nearest: `Nearest` of all images.
        mislabelled: bool `[images]`, whether the label looks wrong.
        splits: list of `Split`s of the classes with the highest scores.
        scores: float64, scores of all classes that can be split, highest first.
        thresholds: `{"pair", "margin", "split"}`.
    """

    store: embedding_store.EmbeddingStore
    pairs: label_noise.Pairs
    duplicates: label_noise.Pairs
    nearest: label_noise.Nearest
    mislabelled: np.ndarray
    splits: list
    scores: np.ndarray
    thresholds: dict


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
    groups: tuple


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
        ValueError: a label is not one of the checkpoint's classes, or new_list is set
            and the data set's images are not files.
    """
    options = settings.classes
    path = trained.find(settings.checkpoints)
    content = manifest.read(path)
    settings, _ = images.complete(settings, path)
    check_report.check_output(options.noise_report, "noise_report")
    # People look at the sheets, and then edit the list of classes to merge.
    outputs.require_absent(f"{options.noise_report.removesuffix('.json')}.merge.txt")
    listing = functools.partial(images.open_listing, settings)
    check_report.check_output(options.new_list, "new_list", listing)
    source = data.open_source(settings)
    effects.log_unused(settings, effects.data_facts(source.used_fields))
    folder = files.parent(options.noise_report)
    scratch = folder if files.is_local(folder) else None
    with tempfile.TemporaryDirectory(prefix="noise-", dir=scratch or None) as place:
        sizes = (content["state"][name] for name in ("num_classes", "embedding_size"))
        store = embedding_store.EmbeddingStore(place, *sizes)
        for rows, labels in images.embeddings(settings, path, source):
            store.add(rows, labels)
        store.finish()
        logging.info("Embedded %s images.", f"{len(store.labels):,}")
        findings = find(store, options)
        facts = {"checkpoint": path, "data_set": source.name}
        table = _write_report(options, findings, source, facts)
        if options.new_list:
            labels = np.where(findings.mislabelled, -1, store.labels)
            row = images.write_list(options.new_list, settings, lambda k, _: labels[k])
            table.append(row)
    return table


def find(store, options):
    """Finds labels that look wrong.

    Args:
        store: the `EmbeddingStore`.
        options: the `Classes` settings.

    Returns:
        `NoiseFindings`.
    """
    thresholds = {
        "pair": options.noise_pair,
        "margin": options.noise_margin,
        "split": _SPLIT,
    }
    pairs = label_noise.closest_pairs(store)
    duplicates = pairs.above(thresholds["pair"])
    nearest = label_noise.nearest_centers(store, duplicates)
    mislabelled = nearest.excess > thresholds["margin"]  # False for NaN
    splitter = label_noise.Splitter(store, ~mislabelled)
    scores = label_noise.split_scores(splitter.alike(), splitter.sizes)
    order = np.argsort(-scores, kind="stable")
    first = splitter.labels[order[:_LISTED]].tolist()
    splits = [splitter.split(label) for label in first]
    found = store, pairs, duplicates, nearest, mislabelled, splits, scores[order]
    return NoiseFindings(*found, thresholds)


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
    store, scores = findings.store, findings.scores
    excess = findings.nearest.excess
    lists = {
        "near_duplicates": list(_pairs(findings, names)),
        "mislabelled": list(_mislabelled(findings, source, names)),
        "two_in_one": list(_splits(findings, source, names)),
    }
    content = {
        "version": 1,
        **facts,
        "thresholds": findings.thresholds,
        "pictures": len(store.labels),
        "classes": store.num_classes,
        "classes_without_pictures": int(np.count_nonzero(store.counts == 0)),
        "near_duplicates": {"count": len(findings.duplicates.first)},
        "mislabelled": {
            "count": int(np.count_nonzero(findings.mislabelled)),
            "nearer_to_another_center": int(np.count_nonzero(excess > 0)),
            "not_judged": int(np.count_nonzero(np.isnan(excess))),
        },
        "two_in_one": {
            "count": int(np.count_nonzero(scores > findings.thresholds["split"])),
            "not_judged": store.num_classes - len(scores),
        },
    }
    table = [(name, text.format(**content)) for name, text in _TABLE.items()]
    beyond = {}
    for kind, listed in lists.items():
        content[kind]["listed"] = [one.values for one in listed]
        beyond[kind] = [one for one in listed if one.values.get("found", True)]
    path = options.noise_report
    check_report.write_report(path, content)
    table.append(("report", path))
    if groups := findings.duplicates.groups():
        merged = f"{path.removesuffix('.json')}.merge.txt"
        lines = "".join(f"{' '.join(map(str, group))}\n" for group in groups)
        files.replace(merged, lines.encode())
        table.append(("to merge them", f"--edit_dir=<new> --merge_classes={merged}"))
    if options.noise_sheets:
        table += _draw_sheets(options.noise_sheets, beyond, source)
    return table


def _pairs(findings, names) -> Iterator[_Finding]:
    """Yields pairs of similar classes."""
    store, pairs = findings.store, findings.pairs
    columns = (pairs.first, pairs.second, pairs.similarity)
    rows = zip(*(column[:_LISTED].tolist() for column in columns), strict=True)
    for k, (a, b, similarity) in enumerate(rows):
        values = {
            "classes": [a, b],
            "names": [names[a], names[b]] if names else None,
            "pictures": store.counts[[a, b]].tolist(),
            "alike": round(similarity, 4),
            "found": k < len(findings.duplicates.first),
        }
        groups = (_members(store, a), _members(store, b)) if k < _ROWS else ()
        yield _Finding(values, f"{a} = {b}\n{similarity:.3f}", groups)


def _mislabelled(findings, source, names) -> Iterator[_Finding]:
    """Yields images that are nearer to another class's center."""
    store, nearest = findings.store, findings.nearest
    numbers = np.flatnonzero(findings.mislabelled)
    numbers = numbers[np.argsort(-nearest.excess[numbers], kind="stable")][:_LISTED]
    for place, number in enumerate(numbers.tolist()):
        own, other = int(store.labels[number]), int(nearest.label[number])
        values = {
            "number": number,
            "picture": source.describe(number),
            "label": own,
            "nearer_to": other,
            "names": [names[own], names[other]] if names else None,
            "cosine": round(float(nearest.own[number]), 4),
            "cosine_there": round(float(nearest.other[number]), 4),
        }
        groups, title = (), f"{own} -> {other}\n{nearest.excess[number]:.3f}"
        if place < _ROWS:
            groups = [number], _members(store, own, number), _members(store, other)
        yield _Finding(values, title, groups)


def _splits(findings, source, names) -> Iterator[_Finding]:
    """Yields classes whose images form two groups."""
    for split, score in zip(findings.splits, findings.scores, strict=False):
        groups = split.first, split.second
        values = {
            "class": split.label,
            "name": names[split.label] if names else None,
            "sizes": [len(split.first), len(split.second)],
            "alike": round(split.alike, 4),
            "score": round(float(score), 2),
            "found": bool(score > findings.thresholds["split"]),
            "pictures": [list(map(source.describe, g[:3].tolist())) for g in groups],
        }
        title = f"{split.label} ({len(split.first)} + {len(split.second)})"
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
        shown = listed[:_ROWS]
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
