"""Several centers per class, of which the nearest one to an example counts.

Sub-center ArcFace (Deng et al., ECCV 2020): with noisy labels the dominant center of a
class gathers its clean images and the others gather the rest, so that wrong labels pull
less at it. A class's rows follow each other, `[classes, sub_centers, emb]`, so a shard,
a tile and a sample of Partial FC always hold whole classes.
"""

from __future__ import annotations

import tensorflow as tf


def flat(weight: tf.Tensor) -> tf.Tensor:
    """`[classes, emb]` or `[classes, sub_centers, emb]` as `[rows, emb]`."""
    if weight.shape.rank == 2:  # noqa: PLR2004 - one center per class
        return weight
    return tf.reshape(weight, [-1, weight.shape[2]])


def nearest(scores: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The largest score of each class; the first of equal ones.

    Args:
        scores: `[classes · count, batch]`, those of a class one after the other.
        count: centers per class.

    Returns:
        (`[classes, batch]` scores, int32 `[classes, batch]` which center has it).
    """
    grouped = tf.reshape(scores, [-1, count, tf.shape(scores)[1]])
    best = grouped[:, 0]
    winner = tf.zeros_like(best, tf.int32)
    # Comparisons fuse into one pass over the scores, which an argmax does not.
    for center in range(1, count):
        better = grouped[:, center] > best
        best = tf.where(better, grouped[:, center], best)
        winner = tf.where(better, center, winner)
    return best, winner


def spread(values: tf.Tensor, winner: tf.Tensor, count: int) -> tf.Tensor:
    """Takes values of classes to the centers that won, and 0 to the others.

    Args:
        values: `[classes, batch]`.
        winner: of `nearest`.
        count: centers per class.

    Returns:
        `[classes · count, batch]`.
    """
    won = winner[:, None, :] == tf.range(count)[None, :, None]
    rows = tf.where(won, values[:, None, :], tf.zeros([], values.dtype))
    return tf.reshape(rows, [-1, tf.shape(values)[1]])


def pick_nearest(weight: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
    """The center of each example's own class that is nearest to it.

    Args:
        weight: `[batch, emb]`, or `[batch, sub_centers, emb]` of its class.
        inputs: `[batch, emb]`.

    Returns:
        `[batch, emb]`.
    """
    if weight.shape.rank == 2:  # noqa: PLR2004 - one center per class
        return weight
    cosines = tf.reduce_sum(
        tf.math.l2_normalize(weight, axis=2) * inputs[:, None, :], axis=2
    )
    return tf.gather(weight, tf.argmax(cosines, axis=1), batch_dims=1)
