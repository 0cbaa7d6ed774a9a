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
    unpack: Callable[[bytes, int], tuple[bytes, int]],
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
        unpack: function of (bytes of a record, its number) that returns (bytes of the
            image, label); raises ValueError if the record is damaged. The label is
            ignored if `parse` or `labels` is given.
        parse: maps strings [block], the first results of `unpack`, to images or,
            without `labels`, to (images, labels); runs inside tf.data.
        labels: int64 [num_examples], or None if they are in the records.
        num_classes: number of classes, None if unknown.
        describe: names an example for an error message.
    """

    def read(indices):
        records = files.read(indices)
        pairs = map(unpack, records, indices.tolist())
        images, found = zip(*pairs, strict=True)
        return np.array(images, object), np.array(found, np.int64)

    def fetch(indices):
        images, found = tf.numpy_function(
            read, [indices], (tf.string, tf.int64), stateful=False
        )
        images = tf.ensure_shape(images, [None])
        if parse is not None:
            return parse(images)
        return (
            images if labels is not None else (images, tf.ensure_shape(found, [None]))
        )

    return IndexedSource(
        name,
        labels,
        fetch,
        num_classes=num_classes,
        num_examples=len(files),
        describe=describe,
        stamp=files.stamp,
        contents=files.contents,
    )
