"""What a finished conversion says of itself: manifest.json beside the shards."""

from __future__ import annotations

import json
import os

import numpy as np

from plsc_tf.data.paths import INDEX_ENDING
from plsc_tf.storage import files

MANIFEST = "manifest.json"
_VERSION = 1
_ROWS = 1 << 20


def write(folder: str, shards: list[dict], about: dict, others: dict[str, bytes]):
    """Writes the manifest and the other files of a folder of shards; returns it.

    Args:
        folder: where the shards and their indices are.
        shards: {"name", "count", "bytes", "sha256"} of each.
        about: what else to say; "num_examples" leaves out the padding at the end.
        others: files to write beside the shards, by name.
    """
    listed = {
        shard["name"]: _entry(shard["bytes"], shard["sha256"]) for shard in shards
    }
    for name in [shard["name"] + INDEX_ENDING for shard in shards]:
        listed[name] = _entry(*files.checksum(os.path.join(folder, name)))
    for name, content in others.items():
        found = files.write(os.path.join(folder, name), content, checksum=True)
        listed[name] = _entry(*found)
    content = {
        "version": _VERSION,
        **about,
        "labels": label_summary(folder, shards, about["num_examples"]),
        "shards": shards,
        "files": listed,
    }
    text = json.dumps(content, indent=1) + "\n"
    files.replace(os.path.join(folder, MANIFEST), text.encode())
    return content


def read(folder: str) -> dict | None:
    """Returns the manifest of a folder, None where there is none that can be read."""
    path = os.path.join(folder, MANIFEST)
    if not os.path.isfile(path):
        return None
    try:
        found = json.loads(files.read(path))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def label_summary(folder: str, shards: list[dict], num_examples: int) -> dict:
    """Classes, range of labels and images per class of the first examples.

    Memory grows with the number of classes, not with that of examples.
    """
    labels, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    left = num_examples
    for shard in shards:
        path = os.path.join(folder, shard["name"] + INDEX_ENDING)
        rows = np.load(path, mmap_mode="r")[:left]
        left -= len(rows)
        for first in range(0, len(rows), _ROWS):
            found = np.unique(rows[first : first + _ROWS, 2], return_counts=True)
            labels, counts = _merged(labels, counts, *found)
    return {
        "num_classes": int(labels[-1]) + 1,
        "smallest": int(labels[0]),
        "largest": int(labels[-1]),
        "classes_with_images": len(labels),
        "images_per_class": {
            "smallest": int(counts.min()),
            "median": float(np.median(counts)),
            "mean": round(float(counts.mean()), 3),
            "largest": int(counts.max()),
        },
    }


def _merged(labels, counts, more_labels, more_counts):
    """Two tables of counts as one; labels are sorted."""
    both, places = np.unique(np.concatenate([labels, more_labels]), return_inverse=True)
    total = np.zeros(len(both), np.int64)
    np.add.at(total, places, np.concatenate([counts, more_counts]))
    return both, total


def _entry(size, digest):
    return {"bytes": size, "sha256": digest}
