"""Vectors of length 1, and the way back through their normalisation."""

from __future__ import annotations

import tensorflow as tf

# Squared norms below this count as zero vectors instead of dividing by zero.
TINY = 1e-24


def normalize(embeddings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (`[batch, emb]` of length 1, `[batch, 1]` 1 / ‖x‖)."""
    square = tf.reduce_sum(embeddings * embeddings, axis=1, keepdims=True)
    inverse = tf.math.rsqrt(tf.maximum(square, TINY))
    return embeddings * inverse, inverse


def normalize_gradient(
    unit: tf.Tensor, inverse: tf.Tensor, gradient: tf.Tensor
) -> tf.Tensor:
    """Takes the gradient by x / ‖x‖ back to the gradient by x, `[batch, emb]`."""
    along = tf.reduce_sum(unit * gradient, axis=1, keepdims=True)
    return (gradient - along * unit) * inverse
