"""Decoded, resized pictures kept in memory or in a file."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.source import Source, on_host

_MEGABYTE = 2**20
_PICTURES, _LABELS, _DONE = "pictures.npy", "labels.npy", "cache.json"


def in_memory(source: Source, blocks: tf.data.Dataset) -> Source:
    """Returns the source with its pictures in memory.

    Args:
        source: says how many pictures there are, if it can.
        blocks: all of its (uint8 [block, h, w, 3], int64 [block]), in the order of
            the files.
    """
    size = blocks.element_spec[0].shape[1:]
    pictures = np.empty((source.num_examples or 1024, *size), np.uint8)
    labels = np.empty(len(pictures), np.int64)
    count = 0
    for some, some_labels in blocks.as_numpy_iterator():
        if count + len(some) > len(pictures):
            pictures, labels = _grown(pictures), _grown(labels)
        pictures[count : count + len(some)] = some
        labels[count : count + len(some)] = some_labels
        count += len(some)
    logging.info(
        "%s: %d pictures kept in memory, %.0f MB",
        source.name,
        count,
        pictures[:count].nbytes / _MEGABYTE,
    )
    return source.with_arrays(on_host(pictures[:count]), on_host(labels[:count]))


def on_disk(source: Source, blocks: tf.data.Dataset, folder: str, made: str) -> Source:
    """Returns the source with its pictures in a file that is made only once.

    Pictures that were exchanged under the same name are not noticed.

    Args:
        source: with a known number of examples.
        blocks: as for `in_memory`.
        folder: where caches lie, one sub-folder for each source and preprocessing.
        made: how the pictures were made, in words.

    Raises:
        ValueError: the source can only be read from the front.
    """
    shape = (source.num_examples, *blocks.element_spec[0].shape[1:])
    known = {"made": made, "shape": list(shape), "source": source.fingerprint()}
    text = json.dumps(known, sort_keys=True)
    place = os.path.join(folder, hashlib.sha256(text.encode()).hexdigest()[:16])
    if not os.path.exists(os.path.join(place, _DONE)):
        _write(place, shape, blocks, {"name": source.name, **known})
        logging.info("%s: %d pictures kept in %s", source.name, shape[0], place)
    pictures = np.load(os.path.join(place, _PICTURES), mmap_mode="r")
    labels = on_host(np.load(os.path.join(place, _LABELS)))

    def fetch(indices):
        found = tf.numpy_function(
            lambda k: pictures[k], [indices], tf.uint8, stateful=False
        )
        return tf.ensure_shape(found, [None, *shape[1:]])

    return source.with_fetch(fetch, labels)


def _write(place, shape, blocks, known):
    """Writes the files and, when they are whole, the note that they are."""
    os.makedirs(place, exist_ok=True)
    pictures = np.lib.format.open_memmap(
        os.path.join(place, _PICTURES), "w+", np.uint8, shape
    )
    labels, count = np.empty(shape[0], np.int64), 0
    for some, some_labels in blocks.as_numpy_iterator():
        pictures[count : count + len(some)] = some
        labels[count : count + len(some)] = some_labels
        count += len(some)
    pictures.flush()
    np.save(os.path.join(place, _LABELS), labels)
    partial = os.path.join(place, f"{_DONE}.{os.getpid()}")
    with open(partial, "w", encoding="utf-8") as stream:
        json.dump(known, stream)
    os.replace(partial, os.path.join(place, _DONE))


def _grown(array: np.ndarray) -> np.ndarray:
    """Returns a copy with twice the room, for sources of unknown length."""
    larger = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
