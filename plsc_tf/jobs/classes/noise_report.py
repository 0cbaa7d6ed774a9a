"""A label-noise report: JSON, text, contact sheets, and groups of classes to merge."""

import dataclasses
import json

import numpy as np
import tensorflow as tf

from plsc_tf.data import contact_sheet, images
from plsc_tf.data.source import IndexedSource
from plsc_tf.evaluation.report import format_table
from plsc_tf.storage import files

# Findings of each kind in the text, and on a sheet.
_LINES, _ROWS = 50, 30
# Images of each class on a sheet, and their height and width.
_IMAGES, _SIZE = 5, (56, 56)
_HEADINGS = {
    "near_duplicates": "Two classes, one identity: similarity, classes (images)",
    "mislabelled": "Mislabelled: by how much, label -> nearer to, image",
    "two_in_one": "One class, two identities: score, class (sizes of groups), images",
}


@dataclasses.dataclass(frozen=True)
class _Finding:
    """One finding.

    Attributes:
        values: for JSON.
        line: for the text.
        title: for the sheet.
        groups: numbers of images for the sheet.
        found: whether it is beyond its threshold.
    """

    values: dict
    line: str
    title: str
    groups: tuple
    found: bool = True


def write(options, findings, source, facts):
    """Writes the report, its text, the sheets, and the groups of one identity.

    Args:
        options: the `Classes` settings; names the JSON file, next to which are .txt
            and .merge.txt.
        findings: the `NoiseFindings`.
        source: of the images.
        facts: `{"checkpoint", "data_set"}`.

    Returns:
        the rows of a table.
    """
    names = getattr(source, "class_names", ())
    store, scores = findings.store, findings.scores
    excess = findings.nearest.excess
    lists = {
        "near_duplicates": _pairs(findings, names, options.noise_top),
        "mislabelled": _mislabelled(findings, source, names, options.noise_top),
        "two_in_one": _splits(findings, source, names),
    }
    figures = {
        "near_duplicates": {"count": len(findings.alike.first)},
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
    content = {
        "version": 1,
        **facts,
        "centers": options.noise_centers,
        "thresholds": findings.thresholds,
        "pictures": len(store.labels),
        "classes": store.num_classes,
        "classes_without_pictures": int(np.count_nonzero(store.counts == 0)),
    }
    for kind, listed in lists.items():
        content[kind] = {**figures[kind], "listed": [one.values for one in listed]}
    table = _table(content)
    path, stem = options.noise_report, options.noise_report.removesuffix(".json")
    _write(path, json.dumps(content, indent=1, ensure_ascii=False))
    _write(f"{stem}.txt", f"{format_table(table)}\n\n{_text(lists)}")
    table += [("report", f"{path} and {stem}.txt")]
    groups = findings.alike.groups()
    if groups:
        merged = f"{stem}.merge.txt"
        _write(merged, "".join(f"{' '.join(map(str, group))}\n" for group in groups))
        table.append(("merge them with", f"--edit_dir=<new> --merge_classes={merged}"))
    if options.noise_sheets:
        table += _draw_sheets(options.noise_sheets, lists, source)
    return table


def _pairs(findings, names, top):
    """Pairs of classes that are much alike."""
    store, pairs = findings.store, findings.pairs
    listed = []
    for k in range(min(top, len(pairs.first))):
        labels = [int(pairs.first[k]), int(pairs.second[k])]
        counts = [int(store.counts[label]) for label in labels]
        alike = round(float(pairs.alike[k]), 4)
        found = k < len(findings.alike.first)
        both_names = [names[label] for label in labels] if names else None
        values = {
            "classes": labels,
            "names": both_names,
            "pictures": counts,
            "alike": alike,
            "found": found,
        }
        shown = [f"{a} ({n})" for a, n in zip(labels, counts, strict=True)]
        line = f"  {alike:.3f}  {' and '.join(shown)}"
        line += f"  {' and '.join(both_names)}" if names else ""
        title = f"{labels[0]} = {labels[1]}\n{alike:.3f}"
        groups = tuple(_members(store, a) for a in labels) if k < _ROWS else ()
        listed.append(_Finding(values, line, title, groups, found))
    return listed


def _mislabelled(findings, source, names, top):
    """Images that are nearer to another center."""
    nearest, labels = findings.nearest, findings.store.labels
    numbers = np.flatnonzero(findings.mislabelled)
    numbers = numbers[np.argsort(-nearest.excess[numbers], kind="stable")][:top]
    listed = []
    for place, number in enumerate(numbers.tolist()):
        own, other = int(labels[number]), int(nearest.label[number])
        values = {
            "number": number,
            "picture": source.describe(number),
            "label": own,
            "nearer_to": other,
            "names": [names[own], names[other]] if names else None,
            "cosine": round(float(nearest.own[number]), 4),
            "cosine_there": round(float(nearest.other[number]), 4),
        }
        excess = f"{nearest.excess[number]:.3f}"
        groups = ()
        if place < _ROWS:
            members = _members(findings.store, own, number)
            groups = [number], members, _members(findings.store, other)
        line = f"  {excess}  {own} -> {other}  {values['picture']}"
        listed.append(_Finding(values, line, f"{own} or {other}?\n{excess}", groups))
    return listed


def _splits(findings, source, names):
    """Classes that fall into two groups."""
    listed = []
    for split, score in zip(findings.splits, findings.scores, strict=False):
        groups = split.first, split.second
        sizes = [len(group) for group in groups]
        values = {
            "class": split.label,
            "name": names[split.label] if names else None,
            "sizes": sizes,
            "alike": round(split.alike, 4),
            "score": round(float(score), 2),
            "found": bool(score > findings.thresholds["split"]),
            "pictures": [
                [source.describe(int(number)) for number in group[:3]]
                for group in groups
            ],
        }
        shown = " | ".join(group[0] for group in values["pictures"])
        line = f"  {score:.1f}  {split.label} ({sizes[0]} + {sizes[1]})  {shown}"
        title = f"{split.label}\n{score:.1f}"
        listed.append(_Finding(values, line, title, groups, values["found"]))
    return listed


def _members(store, label, without=-1):
    """Returns the first images of a class, without one of them."""
    numbers = np.flatnonzero(store.labels == label)[: _IMAGES + 1]
    return numbers[numbers != without][:_IMAGES]


def _table(content):
    pairs, wrong = content["near_duplicates"], content["mislabelled"]
    two, limits = content["two_in_one"], content["thresholds"]
    return [
        ("checkpoint", content["checkpoint"]),
        ("data set", content["data_set"]),
        ("images", f"{content['pictures']:,}"),
        (
            "classes",
            f"{content['classes']:,}, {content['classes_without_pictures']:,} of them "
            "without an image",
        ),
        ("centers", content["centers"]),
        (
            "two classes, one identity",
            f"{pairs['count']:,} pairs (similarity of {limits['pair']:g} or more)",
        ),
        (
            "mislabelled images",
            f"{wrong['count']:,} (nearer to another center by {limits['margin']:g}; "
            f"{wrong['nearer_to_another_center']:,} nearer at all; "
            f"{wrong['not_judged']:,} not judged)",
        ),
        (
            "one class, two identities",
            f"{two['count']:,} (score {limits['split']:g} or more; "
            f"{two['not_judged']:,} not judged)",
        ),
    ]


def _text(lists):
    parts = []
    for kind, listed in lists.items():
        lines = [finding.line for finding in listed[:_LINES] if finding.found]
        parts.append("\n".join([_HEADINGS[kind], *lines]) + "\n")
    return "\n".join(parts)


def _write(path, text):
    files.replace(path, text.encode(errors="backslashreplace"))


def _draw_sheets(folder, lists, source):
    """Draws the images of the first findings side by side; returns rows of a table."""
    if not isinstance(source, IndexedSource):
        return [("sheets", f"none: single images of {source.name} cannot be read")]
    files.make_dirs(folder)
    table = []
    for kind, listed in lists.items():
        shown = [finding for finding in listed[:_ROWS] if finding.found]
        if shown:
            path = files.join(folder, f"{kind}.png")
            rows = [(one.title, _images(source, one.groups)) for one in shown]
            contact_sheet.draw(path, rows)
            table.append(("sheet", f"{path}: {len(rows)} of {kind}"))
    return table


def _images(source, groups):
    """Returns the images of groups with a gap between them; short groups are filled."""
    gap, row = np.full((*_SIZE, 3), 255, np.uint8), []
    for position, numbers in enumerate(groups):
        row += [gap] if position else []
        row += [_image(source, int(number)) for number in numbers[:_IMAGES]]
        if len(numbers) > 1 or position:
            row += [gap] * (_IMAGES - len(numbers))
    return row


def _image(source, number):
    image = source.read({"index": tf.constant([number], tf.int64)})["image"][0]
    if isinstance(image, tf.RaggedTensor):
        image = image.to_tensor()
    return images.resize(images.to_rgb(image), _SIZE).numpy()
