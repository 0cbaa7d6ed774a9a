"""Sources whose examples are records in files, found by an index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from plsc_tf.data.records.packed_files import PackedFiles
from plsc_tf.data.source import IndexedSource


def packed_source(
    name: str,
    files: PackedFiles,
    unpack: Callable,
    *,
    parse: Callable | None = None,
    labels: np.ndarray | None = None,
    num_classes: int | None = None,
    describe: Callable[[int], str],
) -> IndexedSource:
    """Makes a source of records.

    Args:
        name: for messages.
        files: reads records by their numbers.
        unpack: function of (bytes of a record, its number) that returns the bytes of
            the image, or where there are no labels (these bytes, the label); raises
            ValueError when the record is damaged.
        parse: maps strings [block], what `unpack` returned, to images, or where there
            are no labels to (images, labels); runs inside tf.data. None: `unpack`
            returns them.
        labels: int64 [num_examples], or None when they are in the records.
        num_classes: number of classes, None when it is not known.
        describe: names an example for an error message.
    """

    def read(indices):
        records = files.read(indices)
        found = np.empty(len(records), object)
        for k, record in enumerate(records):
            found[k] = unpack(record, int(indices[k]))
        return found

    def read_both(indices):
        pairs = read(indices)
        images, found = zip(*pairs, strict=True)
        return np.array(images, object), np.array(found, np.int64)

    def fetch(indices):
        if labels is None and parse is None:
            images, found = tf.numpy_function(
                read_both, [indices], (tf.string, tf.int64), stateful=False
            )
            return tf.ensure_shape(images, [None]), tf.ensure_shape(found, [None])
        records = tf.numpy_function(read, [indices], tf.string, stateful=False)
        records = tf.ensure_shape(records, [None])
        return records if parse is None else parse(records)

    return IndexedSource(
        name,
        labels,
        fetch,
        num_classes=num_classes,
        num_examples=len(files.index),
        describe=describe,
        stamp=files.index.stamp,
        contents=files.index.contents,
    )
