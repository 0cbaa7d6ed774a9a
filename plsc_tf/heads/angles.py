"""Computes angles between embeddings and class centers across shards."""

import math

import tensorflow as tf

from plsc_tf.heads.base import Head
from plsc_tf.heads.kernels import flat, nearest
from plsc_tf.heads.tiles import locate, read


def angles(head: Head, embeddings: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
    """Computes each example's angles to its own and the nearest other class center.

    Call this function in replica context. Weights stay on their replicas; replicas
    exchange only embeddings and their largest cosines.

    Args:
        head: a built `Head`.
        embeddings: `[batch, emb]` embeddings of the replica's own examples.
        labels: int64 `[batch]`.

    Returns:
        list of two tensors `[batch]` for the replica's own examples, in degrees from 0
        to 180: the angle to the own class and the angle to the nearest other class,
        which is 180 if there is only one class.
    """
    inputs = tf.math.l2_normalize(embeddings, axis=1)
    exchange = head.exchange
    inputs, labels = exchange.gather([inputs, labels])
    rows = locate(labels, *exchange.local_classes())
    own = tf.zeros_like(inputs[:, 0])
    other = tf.fill(tf.shape(own), tf.constant(-1.0, own.dtype))
    weight, chosen = head.arrays()["weight"], None
    if weight.sparse:  # a sparse variable must be read by rows, see `ShardedRows`
        chosen = tf.range(weight.local()[0].shape[0], dtype=tf.int64)
    tiles = head.tiles(chosen)
    for index, start in enumerate(tiles.starts):
        numbers = tf.range(start, start + tiles.sizes[index], dtype=tf.int64)
        weights = read(*tiles.handles(index))["weight"]
        centers = tf.math.l2_normalize(flat(weights), axis=1)
        cosines = tf.matmul(centers, inputs, transpose_b=True)
        if head.sub_centers > 1:
            cosines, _ = nearest(cosines, head.sub_centers)
        mine = numbers[:, None] == rows[None, :]
        here = tf.reduce_any(mine, axis=0)
        found = tf.reduce_max(tf.where(mine, cosines, -2.0), axis=0)
        own = tf.where(here, found, own)
        rest = tf.reduce_max(tf.where(mine, -1.0, cosines), axis=0)
        # Tiles run one at a time, so that only one tile's logits are in memory.
        with tf.control_dependencies([own]):
            other = tf.maximum(other, rest)
    own = exchange.total(own)
    other = tf.reduce_max(exchange.gather(other[None]), axis=0)
    return [
        tf.math.acos(tf.clip_by_value(exchange.own(value), -1.0, 1.0)) * (180 / math.pi)
        for value in (own, other)
    ]
