"""Computes the divergence of two heads' class probabilities, tile by tile.

The logits are q · r: without a margin, q = scale · x / ‖x‖ / temperature for an
embedding x, and r = w / ‖w‖ for a class. With plain softmax, q = (x, 1) / temperature
and r = (w, bias). For the trained head h and its teacher t,

    KL(t ‖ h) = q_t · E_t(r_t) − log Z_t − q_h · E_t(r_h) + log Z_h
    ∂KL / ∂q_h = E_h(r_h) − E_t(r_h),

where E is a head's mean over the classes by its probabilities, and Z the sum of its
exponentials. One pass over the tiles adds them up, as in `plsc_tf.heads.tiled_softmax`,
so there is no tensor of all logits. Class weights get no gradient.
"""

import tensorflow as tf

from plsc_tf.graphs import EachTile
from plsc_tf.heads.base import Head
from plsc_tf.heads.kernels import LOWEST, normalize
from plsc_tf.heads.tiles import read


class Divergence:
    """Computes KL(teacher ‖ head) of the class probabilities.

    Args:
        head: the trained `Head`, with one center per class.
        teacher: the teacher's, with the same classes, shards and tiles.
        temperature: divisor of all logits.
    """

    def __init__(self, head: Head, teacher: Head, temperature: float) -> None:
        self._heads, self._temperature = (head, teacher), temperature
        self._each_tile = EachTile(self._add_tile)

    def __call__(self, embeddings: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Returns `[batch]` divergences; call it in replica context.

        Args:
            embeddings: `[batch, emb]`, which get a gradient.
            target: `[batch, size]` embeddings of the teacher.
        """
        exchange = self._heads[0].exchange
        query, theirs = map(self._query, self._heads, (embeddings, target))
        own = tf.stop_gradient(query)
        queries = exchange.gather([own, theirs])
        zero = tf.zeros_like(tf.concat([queries[0][:, :1], *queries], axis=1))
        sums = [(zero[:, :1] + LOWEST, zero)] * 2
        tiles = [head.tiles() for head in self._heads]
        each = list(zip(*(one.each for one in tiles), strict=True))
        # Passing `sums` on makes each tile wait for the previous one.
        _, sums = self._each_tile(each, tiles[0].starts, queries, sums)
        (log_sum, mean), (their_log_sum, by_them) = (
            map(exchange.own, self._whole(*one)) for one in sums
        )
        size = own.shape[1]
        entropy = their_log_sum - tf.reduce_sum(theirs * by_them[:, size:], axis=1)
        slope = mean[:, :size] - by_them[:, :size]
        values = log_sum - tf.reduce_sum(own * by_them[:, :size], axis=1) - entropy
        return values + tf.reduce_sum((query - own) * slope, axis=1)

    def _query(self, head, embeddings):
        if head.loss.normalized:
            return normalize(embeddings)[0] * (head.scale / self._temperature)
        ones = tf.ones_like(embeddings[:, :1])
        return tf.concat([embeddings, ones], axis=1) / self._temperature

    def _add_tile(self, tile, _, queries, sums):
        """Adds a tile to (largest logit `[n, 1]`, exponentials × (1, r_h, r_t))."""
        rows, added = [], []
        for arguments in tile:
            arrays = read(*arguments)
            bias = [arrays["bias"][:, None]] if "bias" in arrays else []
            weight = arrays["weight"] if bias else normalize(arrays["weight"])[0]
            rows.append(tf.concat([weight, *bias], axis=1))
        values = tf.concat([tf.ones_like(rows[0][:, :1]), *rows], axis=1)
        for query, keys, (before, total) in zip(queries, rows, sums, strict=True):
            logits = tf.matmul(query, keys, transpose_b=True)
            largest = tf.reduce_max(logits, axis=1, keepdims=True)
            largest = tf.maximum(before, largest)
            exponentials = tf.matmul(tf.exp(logits - largest), values)
            added.append((largest, tf.exp(before - largest) * total + exponentials))
        return {}, added

    def _whole(self, largest, total):
        """Joins the replicas' sums to log Z `[n]` and the means of (r_h, r_t)."""
        exchange = self._heads[0].exchange
        overall = tf.reduce_max(exchange.gather(largest[None]), axis=0)
        total = exchange.total(tf.exp(largest - overall) * total)
        return (overall + tf.math.log(total[:, :1]))[:, 0], total[:, 1:] / total[:, :1]
