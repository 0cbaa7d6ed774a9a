"""Which classes take part in a step of Partial FC."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from plsc_tf.heads.layout import sample_size


def sample_rows(rows: tf.Tensor, count: Any, rate: float, seed: tuple) -> tf.Tensor:
    """All true classes of a replica, filled up with a random choice of the others.

    As in arcface_torch (PartialFC_V2), every class draws a number in [0, 1), true
    classes get 2, and the `rate · count` largest take part; when there are more true
    classes than that, these alone do.

    Args:
        rows: int64 `[global_batch]` rows of the true classes; others of the global
            batch are outside [0, count).
        count: classes of the replica.
        rate: share of them, in (0, 1).
        seed: (seed, replica, step); the same gives the same classes.

    Returns:
        int64 `[sample]`, ascending; the size is known beforehand unless the batch
        is larger than the sample.
    """
    size = sample_size(count, rate)
    first = tf.stack([tf.cast(part, tf.int32) for part in seed[:2]])
    keyed = tf.random.experimental.stateless_fold_in(first, tf.cast(seed[2], tf.int32))
    priority = tf.random.stateless_uniform([count], keyed)
    here = tf.logical_and(rows >= 0, rows < count)
    index = tf.where(here, rows, 0)[:, None]
    # A row that is not here marks nothing: class 0 keeps what it drew.
    mark = tf.where(here, 2.0, -1.0)
    priority = tf.tensor_scatter_nd_max(priority, index, mark)
    most = min(count, max(size, rows.shape[0] or count))
    _, chosen = tf.math.top_k(priority, most, sorted=most > size)
    if most > size:
        true_classes = tf.reduce_sum(tf.cast(priority > 1.5, tf.int32))
        chosen = chosen[: tf.maximum(size, true_classes)]
    return tf.sort(tf.cast(chosen, tf.int64))
