"""Caches decoded, resized images in memory or in a file."""

import fcntl
import hashlib
import json
import os
import platform
import shutil

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.source import IndexedSource, Source, in_python, on_host
from plsc_tf.requirements import prefix_errors, require
from plsc_tf.storage import arrays

_IMAGES, _LABELS = "pictures.npy", "labels.npy"


def in_memory(source: Source, blocks: tf.data.Dataset) -> IndexedSource:
    """Returns a source of the same examples whose images are in memory.

    Args:
        source: the source to cache.
        blocks: all of its examples in file order, as (images uint8
            `[block, h, w, 3]`, labels int64 `[block]`).
    """
    parts = list(blocks.as_numpy_iterator())
    images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    del parts
    message = "%s: cached %d images in memory (%.0f MB)"
    logging.info(message, source.name, len(images), images.nbytes / 2**20)
    images = on_host(images)
    return _cached(source, labels, lambda index: tf.gather(images, index))


def on_disk(
    source: Source, blocks: tf.data.Dataset, folder: str, steps: str
) -> IndexedSource:
    """Returns a source of the same examples in a file, which is written only once.

    If several processes need the cache, one writes it and the others wait. Replacing an
    image under the same name does not update the cache.

    Args:
        source: the source to cache, with a known number of examples.
        blocks: see `in_memory`.
        folder: folder of all caches; each source and preprocessing has a subfolder.
        steps: text that identifies the preprocessing.

    Raises:
        ValueError: the source is a stream, without random access.
    """
    shape = (source.num_examples, *blocks.element_spec[0].shape[1:])
    known = {"made": steps, "shape": list(shape), "source": source.fingerprint()}
    # Runs in other folders may call other images by the same relative path.
    name = source.name.removeprefix("zip://")
    if name != source.name or os.path.exists(name):
        known["place"] = os.path.realpath(name)
    text = json.dumps(known, sort_keys=True)
    place = os.path.join(folder, hashlib.sha256(text.encode()).hexdigest()[:16])
    message = "%s: reading images cached in %s. If the images changed, remove it."
    if not os.path.exists(place):
        _fill(place, lambda path: _write(path, shape, blocks))
        message = "%s: cached the images in %s"
    logging.info(message, source.name, place)
    images = arrays.read(os.path.join(place, _IMAGES))
    labels = arrays.read(os.path.join(place, _LABELS))
    found = images.shape, images.dtype, labels.shape, labels.dtype
    fits = found == (shape, np.uint8, shape[:1], np.int64)
    require(fits, f"The cache {place} is damaged", "Remove the folder", found=found)

    def fetch(indices):
        return in_python(images.__getitem__, [indices], tf.uint8, [None, *shape[1:]])

    return _cached(source, labels, fetch)


def _cached(source, labels, fetch):
    name, classes, describe = source.name, source.num_classes, source.describe
    return IndexedSource(name, labels, fetch, num_classes=classes, describe=describe)


def _fill(place, write):
    """Writes a temporary folder and renames it to `place` once it is complete.

    The processes of a machine take turns. If the lock does not work across machines,
    each machine has its own temporary folder, and the first to finish wins.
    """
    os.makedirs(os.path.dirname(place), exist_ok=True)
    partial = f"{place}.{platform.node()}.partial"
    with open(f"{place}.lock", "ab") as lock:
        rule = f"The file system of {place} has no locks"
        with prefix_errors(rule, OSError, advice="Choose another cache_dir"):
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            # A process that was killed may have left it behind.
            shutil.rmtree(partial, ignore_errors=True)
            if not os.path.exists(place):
                write(partial)
            if not os.path.exists(place):
                os.rename(partial, place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _write(place, shape, blocks):
    """Writes the cache's files."""
    os.makedirs(place)
    path = os.path.join(place, _IMAGES)
    images = np.lib.format.open_memmap(path, "w+", np.uint8, shape)
    with open(path, "ab") as file:
        # Else, a full disk ends the process without a word.
        os.posix_fallocate(file.fileno(), 0, file.tell())
    labels, count = np.empty(shape[0], np.int64), 0
    for some, some_labels in blocks.as_numpy_iterator():
        images[count : count + len(some)] = some
        labels[count : count + len(some)] = some_labels
        count += len(some)
    images.flush()
    np.save(os.path.join(place, _LABELS), labels)
