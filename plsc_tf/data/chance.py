"""Random numbers of the examples of an epoch."""

from __future__ import annotations

import tensorflow as tf

from plsc_tf.data.augmentation import NUM_CHANCES

_PHILOX = 1
# Philox makes four numbers of 32 bits for each value of its counter.
_PER_COUNT = 4


def chances(seed, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Draws the numbers of the examples at positions first ... first + count - 1.

    Each position has numbers of its own, whatever block it is drawn with.

    Args:
        seed: int64 scalar.
        first: int64 scalar.
        count: int64 scalar.

    Returns:
        float32 [count, NUM_CHANCES], uniform in [0, 1).
    """
    begin = first * (NUM_CHANCES // _PER_COUNT)
    return tf.raw_ops.StatelessRandomUniformV2(
        shape=tf.stack([count, NUM_CHANCES]),
        key=tf.cast(tf.reshape(seed, [1]), tf.uint64),
        counter=tf.cast(tf.stack([begin, tf.zeros_like(begin)]), tf.uint64),
        alg=_PHILOX,
        dtype=tf.float32,
    )
