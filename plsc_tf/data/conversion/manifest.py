"""manifest.json: the summary of a finished conversion, next to its shards."""

from __future__ import annotations

import concurrent.futures
import json
import os
from collections.abc import Sequence

import numpy as np

from plsc_tf.data.paths import INDEX_ENDING
from plsc_tf.storage import files

MANIFEST = "manifest.json"
_VERSION = 1


def write(
    folder: str, names: Sequence[str], facts: dict, others: dict[str, bytes]
) -> dict:
    """Writes the manifest and the other files of a folder of shards; returns it.

    Args:
        folder: of the shards and their indices.
        names: of the shards.
        facts: further entries; "num_examples" leaves out the padding at the end.
        others: {name: content} of files that go with the shards.
    """
    for name, content in others.items():
        files.write(os.path.join(folder, name), content)
    listed = [*names, *(name + INDEX_ENDING for name in names), *others]
    paths = [os.path.join(folder, name) for name in listed]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sums = list(pool.map(files.checksum, paths))
    entries = {
        name: {"bytes": size, "sha256": digest}
        for name, (size, digest) in zip(listed, sums, strict=True)
    }
    labels = [_index(folder, name)[:, 2] for name in names]
    shards = [
        {"name": name, "count": len(column), **entries[name]}
        for name, column in zip(names, labels, strict=True)
    ]
    content = {
        "version": _VERSION,
        **facts,
        "labels": _label_summary(labels, facts["num_examples"]),
        "shards": shards,
        "files": entries,
    }
    text = json.dumps(content, indent=1) + "\n"
    files.replace(os.path.join(folder, MANIFEST), text.encode())
    return content


def read(folder: str) -> dict | None:
    """Returns the manifest of a folder, None if it has none that can be read."""
    try:
        content = json.loads(files.read(os.path.join(folder, MANIFEST)))
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _index(folder, name):
    return np.load(os.path.join(folder, name + INDEX_ENDING), mmap_mode="r")


def _label_summary(columns, num_examples):
    """Classes, range of labels and images per class of the first examples.

    Memory grows with the number of classes and the examples of a shard.
    """
    labels, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for column in columns:
        more = np.unique(column[:num_examples], return_counts=True)
        num_examples -= min(len(column), num_examples)
        labels, places = np.unique(np.append(labels, more[0]), return_inverse=True)
        counts = np.bincount(places, np.append(counts, more[1])).astype(np.int64)
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
