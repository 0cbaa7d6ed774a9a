"""A label-noise report as JSON, as text, and as groups of classes to merge."""

import json

import numpy as np

from plsc_tf.evaluation.report import format_table
from plsc_tf.storage import files

# Lines of each kind in the text.
_LINES = 50


def write(path, found, given, describe, names, about):
    """Writes the report beside its text, and the groups that seem to be one identity.

    Args:
        path: of the JSON file; the others have its name, and .txt and .merge.txt.
        found: the `Found`.
        given: the `Classes` settings.
        describe: function of a picture's number that names it.
        names: of the classes, or empty.
        about: `{"checkpoint", "data_set"}`.

    Returns:
        the rows of a table.
    """
    top = given.noise_top
    content = {
        "version": 1,
        **about,
        "centers": given.noise_centers,
        "thresholds": found.thresholds,
        "pictures": len(found.store.labels),
        "classes": found.store.num_classes,
        "classes_without_pictures": int(np.count_nonzero(found.store.counts == 0)),
        "near_duplicates": _pairs(found, names, top),
        "mislabelled": _pictures(found, describe, names, top),
        "two_in_one": _splits(found, describe, names, top),
    }
    table = _table(content)
    stem = path.removesuffix(".json")
    text = json.dumps(content, indent=1, ensure_ascii=False)
    files.replace(path, text.encode(errors="backslashreplace"))
    text = f"{format_table(table)}\n\n{_text(content)}"
    files.replace(f"{stem}.txt", text.encode(errors="backslashreplace"))
    table += [("report", f"{path} and {stem}.txt")]
    groups = found.alike.groups()
    if groups:
        lines = [" ".join(map(str, group)) for group in groups]
        files.replace(f"{stem}.merge.txt", "".join(f"{x}\n" for x in lines).encode())
        table.append(
            ("merge them with", f"--edit_dir=<new> --merge_classes={stem}.merge.txt")
        )
    return table


def _pairs(found, names, top):
    counts, pairs = found.store.counts, found.pairs
    listed = []
    for k in range(min(top, len(pairs.first))):
        labels = [int(pairs.first[k]), int(pairs.second[k])]
        listed.append(
            {
                "classes": labels,
                "names": [names[label] for label in labels] if names else None,
                "pictures": [int(counts[label]) for label in labels],
                "alike": round(float(pairs.alike[k]), 4),
                "found": k < len(found.alike.first),
            }
        )
    return {"count": len(found.alike.first), "listed": listed}


def _pictures(found, describe, names, top):
    nearest, labels = found.nearest, found.store.labels
    judged = ~np.isnan(nearest.excess)
    excess = np.where(judged, nearest.excess, -np.inf)
    listed = []
    for number in np.argsort(-excess, kind="stable")[:top].tolist():
        if not found.mislabelled[number]:
            break
        own, other = int(labels[number]), int(nearest.label[number])
        listed.append(
            {
                "number": number,
                "picture": describe(number),
                "label": own,
                "nearer_to": other,
                "names": [names[own], names[other]] if names else None,
                "cosine": round(float(nearest.own[number]), 4),
                "cosine_there": round(float(nearest.other[number]), 4),
            }
        )
    return {
        "count": int(np.count_nonzero(found.mislabelled)),
        "nearer_to_another_center": int(np.count_nonzero(excess > 0)),
        "not_judged": int(np.count_nonzero(~judged)),
        "listed": listed,
    }


def _splits(found, describe, names, top):
    listed = []
    for split, score in zip(found.splits[:top], found.scores, strict=False):
        listed.append(
            {
                "class": split.label,
                "name": names[split.label] if names else None,
                "sizes": [len(split.first), len(split.second)],
                "alike": round(split.alike, 4),
                "score": round(float(score), 2),
                "found": bool(score > found.thresholds["split"]),
                "pictures": [
                    [describe(int(number)) for number in group[:3]]
                    for group in (split.first, split.second)
                ],
            }
        )
    return {
        "count": int(np.count_nonzero(found.scores > found.thresholds["split"])),
        "not_judged": found.store.num_classes - len(found.scores),
        "listed": listed,
    }


def _table(content):
    pairs, wrong = content["near_duplicates"], content["mislabelled"]
    two, limits = content["two_in_one"], content["thresholds"]
    return [
        ("checkpoint", content["checkpoint"]),
        ("data set", content["data_set"]),
        ("pictures", f"{content['pictures']:,}"),
        (
            "classes",
            f"{content['classes']:,}, {content['classes_without_pictures']:,} of them "
            "without a picture",
        ),
        ("centers", content["centers"]),
        (
            "two classes, one identity",
            f"{pairs['count']:,} pairs (alike by {limits['pair']:g} or more)",
        ),
        (
            "mislabelled pictures",
            f"{wrong['count']:,} (nearer to another center by {limits['margin']:g}; "
            f"{wrong['nearer_to_another_center']:,} by anything; "
            f"{wrong['not_judged']:,} not judged)",
        ),
        (
            "one class, two identities",
            f"{two['count']:,} (score {limits['split']:g} or more; "
            f"{two['not_judged']:,} not judged)",
        ),
    ]


def _text(content):
    lines = ["Two classes, one identity: alike, classes (pictures)"]
    for pair in content["near_duplicates"]["listed"][:_LINES]:
        told = " and ".join(
            f"{label} ({count})"
            for label, count in zip(pair["classes"], pair["pictures"], strict=True)
        )
        if pair["found"]:
            lines.append(f"  {pair['alike']:.3f}  {told}{_named(pair['names'])}")
    lines += ["", "Mislabelled: by how much, label -> nearer to, picture"]
    for one in content["mislabelled"]["listed"][:_LINES]:
        excess = one["cosine_there"] - one["cosine"]
        lines.append(
            f"  {excess:.3f}  {one['label']} -> {one['nearer_to']}  {one['picture']}"
        )
    lines += ["", "One class, two identities: score, class (sizes of groups), pictures"]
    for two in content["two_in_one"]["listed"][:_LINES]:
        if two["found"]:
            sizes = " + ".join(map(str, two["sizes"]))
            shown = " | ".join(group[0] for group in two["pictures"])
            lines.append(f"  {two['score']:.1f}  {two['class']} ({sizes})  {shown}")
    return "\n".join(lines) + "\n"


def _named(names):
    return f"  {' and '.join(names)}" if names else ""
