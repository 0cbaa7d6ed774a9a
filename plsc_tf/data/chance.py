"""Random numbers of the examples of an epoch."""

from __future__ import annotations

import tensorflow as tf

from plsc_tf.data.augmentation import NUM_CHANCES

_PHILOX = 1
# Philox makes four numbers of 32 bits for each value of its counter.
_PER_COUNT = 4


def chances(seed, positions: tf.Tensor) -> tf.Tensor:
    """Draws the numbers of the examples at some positions of an epoch.

    Each position has numbers of its own, whatever block it is drawn with. Those of
    all positions between the first and the last one are drawn.

    Args:
        seed: int64 scalar.
        positions: int64 [n], n > 0.

    Returns:
        float32 [n, NUM_CHANCES], uniform in [0, 1).
    """
    first = tf.reduce_min(positions)
    count = tf.reduce_max(positions) - first + 1
    begin = first * (NUM_CHANCES // _PER_COUNT)
    drawn = tf.raw_ops.StatelessRandomUniformV2(
        shape=tf.stack([count, NUM_CHANCES]),
        key=tf.cast(tf.reshape(seed, [1]), tf.uint64),
        counter=tf.cast(tf.stack([begin, tf.zeros_like(begin)]), tf.uint64),
        alg=_PHILOX,
        dtype=tf.float32,
    )
    return tf.gather(drawn, positions - first)
