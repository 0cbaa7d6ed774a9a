"""Decoded, resized images kept in memory or in a file."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import platform
import shutil
import uuid

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.source import Source, on_host

_PARTIAL = ".partial"
_PICTURES, _LABELS, _DONE = "pictures.npy", "labels.npy", "cache.json"


def in_memory(source: Source, blocks: tf.data.Dataset) -> Source:
    """Returns the source with its images in memory.

    Args:
        source: says how many images there are, if it can.
        blocks: all of its (uint8 [block, h, w, 3], int64 [block]), in the order of
            the files.
    """
    parts = list(blocks.as_numpy_iterator())
    pictures, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    del parts
    logging.info(
        "%s: %d images kept in memory, %.0f MB",
        *(source.name, len(pictures), pictures.nbytes / 2**20),
    )
    pictures = on_host(pictures)
    return source.with_fetch(lambda index: tf.gather(pictures, index), on_host(labels))


def on_disk(source: Source, blocks: tf.data.Dataset, folder: str, made: str) -> Source:
    """Returns the source with its images in a file that is made only once.

    Of several processes that want it one makes it, the others wait. Images that
    were exchanged under the same name are not noticed.

    Args:
        source: with a known number of examples.
        blocks: as for `in_memory`.
        folder: where caches lie, one sub-folder for each source and preprocessing.
        made: how the images were made, in words.

    Raises:
        ValueError: the source can only be read from the front.
    """
    shape = (source.num_examples, *blocks.element_spec[0].shape[1:])
    known = {"made": made, "shape": list(shape), "source": source.fingerprint()}
    text = json.dumps(known, sort_keys=True)
    place = os.path.join(folder, hashlib.sha256(text.encode()).hexdigest()[:16])
    if not _is_done(place):
        _fill(place, lambda path: _write(path, shape, blocks, source.name, known))
        logging.info("%s: %d images kept in %s", source.name, shape[0], place)
    pictures = np.load(os.path.join(place, _PICTURES), mmap_mode="r")
    labels = on_host(np.load(os.path.join(place, _LABELS)))

    def fetch(indices):
        found = tf.numpy_function(
            lambda k: pictures[k], [indices], tf.uint8, stateful=False
        )
        return tf.ensure_shape(found, [None, *shape[1:]])

    return source.with_fetch(fetch, labels)


def _is_done(place):
    return os.path.exists(os.path.join(place, _DONE))


def _fill(place, write):
    """Writes a folder next to its place, and moves it there when it is whole.

    Where a file system has no locks that all its machines see, several processes write
    at the same time, each to a folder of its own; the first one is kept.
    """
    os.makedirs(os.path.dirname(place), exist_ok=True)
    own = f"{place}.{platform.node()}."
    with open(f"{place}.lock", "ab") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Left by a process of this machine that was killed.
            for path in glob.glob(f"{glob.escape(own)}*{_PARTIAL}"):
                shutil.rmtree(path, ignore_errors=True)
        if not _is_done(place):
            partial = f"{own}{uuid.uuid4().hex[:8]}{_PARTIAL}"
            try:
                write(partial)
                os.rename(partial, place)
            except OSError:
                if not _is_done(place):
                    raise
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        # A process that still waits for this lock finds the cache.
        with contextlib.suppress(FileNotFoundError):
            os.remove(lock.name)


def _write(place, shape, blocks, name, known):
    """Writes the files and, when they are whole, the note that they are."""
    os.makedirs(place)
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
    with open(os.path.join(place, _DONE), "w", encoding="utf-8") as stream:
        json.dump({"name": name, **known}, stream)
