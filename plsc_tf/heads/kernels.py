"""What a head computes on one tile: matrix products, and passes over the logits.

XLA compiles the passes into one or two sweeps over `[classes, batch]`; the matrix
products around them are TensorFlow's, whose kernels are faster on CPUs.

Several centers per class (Sub-center ArcFace, Deng et al., ECCV 2020): with noisy
labels the dominant center of a class gathers its clean images and the others gather the
rest, so that wrong labels pull less at it. The rows of a class follow each other,
`[classes, sub_centers, emb]`, so a shard, a tile and a sample hold whole classes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head

DTYPES = ("float32", "bfloat16", "float16")


def product(
    a: tf.Tensor,
    b: tf.Tensor,
    dtype: str,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> tf.Tensor:
    """a · b, summed in float32 whatever the operands' precision.

    On a GPU the result of half-precision operands stays float32. TensorFlow's CPU
    kernels round it to the operands' type once, after the sum.

    Args:
        a: `[m, k]`, or `[k, m]` with `transpose_a`.
        b: `[k, n]`, or `[n, k]` with `transpose_b`.
        dtype: one of `DTYPES`, the precision of the operands; "float32" leaves them
            as they are, which may also be float64.
        transpose_a: whether to transpose a.
        transpose_b: whether to transpose b.

    Returns:
        `[m, n]` in the type of `a`.
    """
    if dtype == "float32":
        return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    half_a, half_b = tf.cast(a, dtype), tf.cast(b, dtype)
    if tf.config.list_logical_devices("GPU"):
        return _wide(half_a, half_b, a.dtype, transpose_a, transpose_b)
    half = tf.matmul(half_a, half_b, transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(half, a.dtype)


@tf.function(autograph=False, jit_compile=True)
def _wide(a, b, dtype, transpose_a, transpose_b):
    return tf.raw_ops.BatchMatMulV3(
        x=a, y=b, Tout=dtype, adj_x=transpose_a, adj_y=transpose_b
    )


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


# Takes the place of the logits of true classes, which are kept apart.
LOWEST = -1e30
# exp of a sum up to this, which float32 holds, stays clear of its largest number.
LOG_LARGEST = 86.0


class Kernels:
    """Elementwise passes over a tile, for the options of one head.

    With several centers per class, `products` and `offset` below have as many rows per
    class, and so do results of the same length; `rows` still counts classes.

    Args:
        head: the `Head`.
        compiled: whether XLA compiles the passes. Compiling takes a while for each
            shape of tile, which small tiles do not repay.

    Attributes:
        loss: the `MarginLoss`.
        scale: factor of the cosines; 1 for plain softmax.
        dtype: precision of the matrix products' operands, one of `DTYPES`.
        label_smoothing: share of the target spread evenly over all classes.
        even_share: label smoothing divided by the number of classes; 0 for none.
        sub_centers: rows per class, of which the nearest one counts.
        bounded: whether the exponentials of all logits can be summed in float32 as they
            are. No logit of a margin loss exceeds scale · largest.
    """

    def __init__(self, head: Head, compiled: bool) -> None:
        self.loss = head.loss
        self.scale = head.scale if self.loss.normalized else 1.0
        self.dtype = head.dtype
        self.label_smoothing = head.label_smoothing
        self.even_share = head.label_smoothing / head.num_classes
        self.sub_centers = head.sub_centers
        log_sum = self.scale * self.loss.largest + math.log(head.num_classes)
        wide = self.loss.normalized and self.dtype != "float16"
        self.bounded = wide and log_sum < LOG_LARGEST
        self.forward = self._forward
        self.errors = self._errors
        if compiled:
            self.forward = _compiled(self._forward)
            self.errors = _compiled(self._errors)

    def _forward(  # noqa: PLR0913 - a compiled function takes tensors, not objects
        self, products, offset, rows, target, state, plain, maximum, with_ranks
    ):
        """The first pass: exponentials of the logits.

        Args:
            products: `[classes, batch]` products of weights and inputs.
            offset: `[classes]` 1 / ‖w‖, or the biases of plain softmax.
            rows: int32 `[batch]` row of the true class, if it is in this tile.
            target: the `Target` of the examples.
            state: of the loss.
            plain: `[batch]` score of the true class, without margin.
            maximum: `[batch]` largest logit so far; 0 when bounded.
            with_ranks: whether to count the scores above the true class's.

        Returns:
            dict of `pull` `[classes, batch]`, exp(logit − maximum) ∂value/∂product;
            unless bounded, `maximum` so far and `shrink` `[batch]`, what former
            exponentials must be multiplied with; unless the pull tells it, `total`
            `[batch]` of the tile's exponentials; with ranks `above` int32 `[batch]`;
            with smoothing `logits` `[batch]`, their sum, and `even`
            `[classes, batch]`, the pull of a loss that weighs all classes alike.
        """
        score, value, slope, winner = self._scores(products, offset, target, state)
        hit = tf.range(tf.shape(score)[0])[:, None] == rows[None, :]
        logits, result = self.scale * value, {}
        if self.bounded:
            exponential = tf.where(hit, tf.zeros_like(logits), tf.exp(logits))
        else:
            others = tf.where(hit, tf.cast(LOWEST, value.dtype), logits)
            largest = tf.maximum(maximum, tf.reduce_max(others, axis=0))
            exponential = tf.exp(others - largest)
            result["maximum"] = largest
            result["shrink"] = tf.exp(maximum - largest)
        result["pull"] = self._inward(exponential, slope, offset, winner)
        if slope is not None:
            result["total"] = tf.reduce_sum(exponential, axis=0)
        if with_ranks:
            # The true class itself is left out: rounding may put it above itself.
            above = tf.logical_and(score > plain, tf.logical_not(hit))
            result["above"] = tf.reduce_sum(tf.cast(above, tf.int32), axis=0)
        if self.even_share:
            others = tf.cast(tf.logical_not(hit), value.dtype)
            result["logits"] = tf.reduce_sum(others * logits, axis=0)
            result["even"] = self._inward(others, slope, offset, winner)
        return result

    def _errors(self, products, offset, rows, target, state, example):
        """The second pass: derivatives by the products.

        Args:
            products: `[classes, batch]` as before.
            offset: `[classes]` as before.
            rows: int32 `[batch]` as before.
            target: the `Target` of the examples.
            state: of the loss.
            example: dict of `[batch]`: `log_total`, `target_error` and `factor`.

        Returns:
            (`[classes, batch]` derivative by the products, but for the example's
            `factor`; `[classes]` share of w that must be taken off the weights'
            gradient, or the biases' gradient of plain softmax).
        """
        score, value, slope, winner = self._scores(products, offset, target, state)
        hit = tf.range(tf.shape(score)[0])[:, None] == rows[None, :]
        error = tf.exp(self.scale * value - example["log_total"]) - self.even_share
        if slope is not None:
            error *= slope
        error = tf.where(hit, example["target_error"], error)
        if not self.loss.normalized:
            return error, tf.reduce_sum(error * example["factor"], axis=1)
        # w / ‖w‖ does not change with what points along w.
        along = error * score * example["factor"]
        if winner is not None:
            error = spread(error, winner, self.sub_centers)
            along = spread(along, winner, self.sub_centers)
        along = tf.reduce_sum(along, axis=1)
        return error * offset[:, None], along * tf.square(offset)

    def _scores(self, products, offset, target, state):
        if not self.loss.normalized:
            score = products + offset[:, None]
            return score, score, None, None
        cosine, winner = products * offset[:, None], None
        if self.sub_centers > 1:
            cosine, winner = nearest(cosine, self.sub_centers)
        value, slope = self.loss.others(cosine, target, state)
        return cosine, value, slope, winner

    def _inward(self, weights, slope, offset, winner):
        """The weights of the values, times d value / d product."""
        if not self.loss.normalized:
            return weights
        if winner is not None:
            weights = weights if slope is None else weights * slope
            return spread(weights, winner, self.sub_centers) * offset[:, None]
        return weights * (offset[:, None] if slope is None else slope * offset[:, None])


def _compiled(function):
    return tf.function(function, autograph=False, jit_compile=True)
