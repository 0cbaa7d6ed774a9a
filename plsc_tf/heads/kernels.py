"""Computations of a head on one tile: matrix products and passes over the logits.

XLA compiles the passes into one or two sweeps over `[classes, batch]`. The matrix
products use TensorFlow's kernels, which are faster on CPUs.

A class may have several centers (Sub-center ArcFace, Deng et al., ECCV 2020). With
noisy labels, the dominant center of a class attracts its clean images and the other
centers attract the rest, so wrong labels distort the dominant center less. The centers
of a class are adjacent, `[classes, sub_centers, emb]`, so shards, tiles and samples
always contain whole classes.
"""

import math
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

from plsc_tf.graphs import with_xla
from plsc_tf.heads.tiles import read
from plsc_tf.parallel import packing

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head

DTYPES = ("float32", "bfloat16", "float16")


# Squared norms are raised to at least this value to avoid a division by zero.
TINY = 1e-24


def normalize(embeddings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (`[batch, emb]` rows normalized to length 1, `[batch, 1]` 1 / ‖x‖)."""
    square = tf.reduce_sum(embeddings * embeddings, axis=1, keepdims=True)
    inverse = tf.math.rsqrt(tf.maximum(square, TINY))
    return embeddings * inverse, inverse


def normalize_gradient(
    unit: tf.Tensor, inverse: tf.Tensor, gradient: tf.Tensor
) -> tf.Tensor:
    """Converts gradients with respect to x / ‖x‖ to gradients with respect to x."""
    along = tf.reduce_sum(unit * gradient, axis=1, keepdims=True)
    return (gradient - along * unit) * inverse


def flat(weight: tf.Tensor) -> tf.Tensor:
    """Reshapes `[classes, emb]` or `[classes, sub_centers, emb]` to `[rows, emb]`."""
    if weight.shape.rank == 2:  # noqa: PLR2004 - one center per class
        return weight
    return tf.reshape(weight, [-1, weight.shape[2]])


def nearest(scores: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the largest score of each class; the first center wins a tie.

    Args:
        scores: `[classes · count, batch]`; the rows of a class are adjacent.
        count: centers per class.

    Returns:
        (`[classes, batch]` largest scores, `[classes, batch]` numbers of the centers
        that have them, in the same dtype).
    """
    grouped = tf.reshape(scores, [-1, count, tf.shape(scores)[1]])
    best = grouped[:, 0]
    winner = tf.zeros_like(best)
    # XLA fuses comparisons, but not an argmax, into one pass over the scores.
    for center in range(1, count):
        better = grouped[:, center] > best
        best = tf.where(better, grouped[:, center], best)
        winner = tf.where(better, tf.cast(center, best.dtype), winner)
    return best, winner


def scatter_to_centers(values: tf.Tensor, winner: tf.Tensor, count: int) -> tf.Tensor:
    """Assigns each class's value to its winning center, and 0 to its other centers.

    Args:
        values: `[classes, batch]`.
        winner: the winning centers returned by `nearest`.
        count: centers per class.

    Returns:
        `[classes · count, batch]`.
    """
    won = winner[:, None, :] == tf.range(count, dtype=winner.dtype)[None, :, None]
    rows = tf.where(won, values[:, None, :], tf.zeros([], values.dtype))
    return tf.reshape(rows, [-1, tf.shape(values)[1]])


def pick_nearest(weight: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
    """Picks, for each example, the nearest center of its own class.

    Args:
        weight: `[batch, emb]` or `[batch, sub_centers, emb]` centers of each example's
            own class.
        inputs: `[batch, emb]` embeddings.

    Returns:
        `[batch, emb]`.
    """
    if weight.shape.rank == 2:  # noqa: PLR2004 - one center per class
        return weight
    unit = tf.math.l2_normalize(weight, axis=2)
    cosines = tf.reduce_sum(unit * inputs[:, None, :], axis=2)
    return tf.gather(weight, tf.argmax(cosines, axis=1), batch_dims=1)


# Replaces the logits of true classes, which are kept out of the sums.
LOWEST = -1e30
# exp(86) is safely below the largest float32 number.
LOG_LARGEST = 86.0


class Kernels:
    """Matrix products and elementwise passes over a tile, configured by one head.

    On GPUs, the passes write what the next product multiplies in that product's
    precision, and compute sums that a matrix-vector product computes faster on CPUs.

    With several centers per class, `products`, `row_scalar` and results of the same
    length have one row per center; `rows` still indexes classes.

    Args:
        head: the `Head`.
        compiled: whether XLA compiles the passes. Each tile shape is compiled
            separately, which costs more time than it saves for small tiles.

    Attributes:
        loss: the `MarginLoss`.
        scale: factor of the cosines; 1 for plain softmax.
        floatx: Keras's float type, of the weights and of all sums.
        dtype: precision of the matrix products' operands, and of the logits.
        on_gpu: whether the replicas run on GPUs.
        label_smoothing: share of the target spread evenly over all classes.
        even_share: label smoothing divided by the number of classes; 0 for none.
        sub_centers: centers per class, of which only the nearest one counts.
        bounded: whether float32 can hold the sum of the exponentials of all logits
            without subtracting the largest logit first. No logit of a margin loss
            exceeds scale · largest.
    """

    def __init__(self, head: "Head", compiled: bool) -> None:
        self.loss = head.loss
        self.scale = head.scale if self.loss.normalized else 1.0
        self.floatx = keras.config.floatx()
        self.dtype = self.floatx if head.dtype == "float32" else head.dtype
        self.on_gpu = head.layout.device_kind == "GPU"
        self.label_smoothing = head.label_smoothing
        self.even_share = head.label_smoothing / head.num_classes
        self.sub_centers = head.sub_centers
        log_sum = self.scale * self.loss.largest + math.log(head.num_classes)
        wide = self.loss.normalized and self.dtype != "float16"
        self.bounded = wide and log_sum < LOG_LARGEST
        # TensorFlow computes int32 on the host, even on GPUs; XLA doesn't, and on CPUs
        # it handles twice as many int32 as int64 at a time.
        self._integer = tf.int32 if compiled else tf.int64
        self._unpack = packing.unpacker(packing.DTYPES[head.weight_dtype], compiled)
        self._wide = with_xla(self._wide_product)
        self.forward = with_xla(self._forward, compiled)
        self.errors = with_xla(self._errors, compiled)

    def read(self, handles: dict, chosen: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """Reads the arrays of a tile, see `tiles.read`."""
        return read(handles, chosen, self._unpack)

    def row_scalar(self, arrays: dict) -> tf.Tensor:
        """Returns 1 / ‖w‖ of a tile's weights, or the biases of plain softmax."""
        if not self.loss.normalized:
            return arrays["bias"]
        # This runs at memory speed, unlike XLA's sum over the last axis.
        norms = tf.math.reduce_euclidean_norm(flat(arrays["weight"]), axis=1)
        return 1.0 / tf.maximum(norms, TINY**0.5)

    def operand(self, value: tf.Tensor) -> tf.Tensor:
        """Casts an operand of a matrix product to `dtype`."""
        return tf.cast(value, self.dtype)

    def products(self, weight: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        """Multiplies `[rows, emb]` by `[batch, emb]`; returns `[rows, batch]`.

        Half-precision results are rounded once, after the sum in float32.
        """
        return tf.matmul(self.operand(weight), self.operand(inputs), transpose_b=True)

    def gradient(
        self, a: tf.Tensor, b: tf.Tensor, transpose_a: bool = False
    ) -> tf.Tensor:
        """Computes a · b, or aᵀ · b, in float32 from operands of `dtype`.

        TensorFlow's CPU kernels round the result of half-precision operands to their
        precision, once, after the sum.
        """
        a, b = self.operand(a), self.operand(b)
        if self.on_gpu and self.dtype != self.floatx:
            return self._wide(a, b, transpose_a)
        return tf.cast(tf.matmul(a, b, transpose_a=transpose_a), self.floatx)

    def _wide_product(self, a, b, transpose_a):
        return tf.raw_ops.BatchMatMulV3(x=a, y=b, Tout=self.floatx, adj_x=transpose_a)

    def _forward(  # noqa: PLR0913 - a compiled function takes tensors, not objects
        self, products, row_scalar, rows, target, state, plain, maximum, with_ranks
    ):
        """The first pass: exponentials of the logits.

        Args:
            products: `[classes, batch]` products of weights and inputs, in `dtype`.
            row_scalar: `[classes]` 1 / ‖w‖, or the biases of plain softmax.
            rows: int64 `[batch]` row of the true class, if it is in this tile.
            target: the `Target` of the examples.
            state: the loss function's state.
            plain: `[batch]` score of the true class, without margin.
            maximum: `[batch]` largest logit so far; 0 when bounded.
            with_ranks: whether to count the other scores that are at least as high.

        Returns:
            dict of `numerator` `[classes, batch]`:
            exp(logit − maximum) ∂value/∂product; unless bounded, `maximum` `[batch]`:
            the largest logit so far, and `shrink` `[batch]`: the factor that rescales
            earlier exponentials; on GPUs, or if `others` returns slopes, `total`
            `[batch]`: the sum of the tile's exponentials (it can otherwise be computed
            from `numerator`);
            with ranks, `above` int64 `[batch]`; with label smoothing, `logits`
            `[batch]`: the sum of the logits, and `even_slope` `[classes, batch]`:
            ∂value/∂product.
        """
        score, value, slope, winner = self._scores(products, row_scalar, target, state)
        hit = self._hits(score, rows)
        logits, result = self.scale * value, {}
        if self.bounded:
            exponential = tf.where(hit, tf.zeros_like(logits), tf.exp(logits))
        else:
            others = tf.where(hit, tf.cast(LOWEST, value.dtype), logits)
            largest = tf.maximum(maximum, tf.reduce_max(others, axis=0))
            exponential = tf.exp(others - largest)
            result |= {"maximum": largest, "shrink": tf.exp(maximum - largest)}
        result["numerator"] = self._inward(exponential, slope, row_scalar, winner)
        if self.on_gpu or slope is not None:
            result["total"] = tf.reduce_sum(exponential, axis=0)
        if with_ranks:
            # Excludes the true class: rounding could rank it above itself. Equal scores
            # and NaN count against the model: rows of zeros must not be accurate.
            above = tf.logical_not(tf.logical_or(score < plain, hit))
            above = tf.reduce_sum(tf.cast(above, self._integer), axis=0)
            result["above"] = tf.cast(above, tf.int64)
        if self.even_share:
            others = tf.cast(tf.logical_not(hit), value.dtype)
            result["logits"] = tf.reduce_sum(others * logits, axis=0)
            result["even_slope"] = self._inward(others, slope, row_scalar, winner)
        return result

    def _errors(self, products, row_scalar, rows, target, state, example):
        """The second pass: derivatives with respect to the products.

        Args:
            products: `[classes, batch]`, as in `_forward`.
            row_scalar: `[classes]`, as in `_forward`.
            rows: int64 `[batch]`, as in `_forward`.
            target: the `Target` of the examples.
            state: the loss function's state.
            example: dict of `[batch]`: `log_total`, `target_error` and `factor`.

        Returns:
            (`[classes, batch]` derivative with respect to the products, not yet
            multiplied by the example's `factor`; `[classes]` multiple of w to subtract
            from the weight gradient, or the bias gradient of plain softmax).
        """
        score, value, slope, winner = self._scores(products, row_scalar, target, state)
        hit = self._hits(score, rows)
        error = tf.exp(self.scale * value - example["log_total"]) - self.even_share
        if slope is not None:
            error *= slope
        error = tf.where(hit, example["target_error"], error)
        if not self.loss.normalized:
            along = tf.reduce_sum(error * example["factor"], axis=1)
            return self._emitted(error), along
        # The gradient of w / ‖w‖ has no component along w.
        along = error * score * example["factor"]
        if winner is not None:
            error = scatter_to_centers(error, winner, self.sub_centers)
            along = scatter_to_centers(along, winner, self.sub_centers)
        along = tf.reduce_sum(along, axis=1)
        return self._emitted(error * row_scalar[:, None]), along * tf.square(row_scalar)

    def _hits(self, score, rows):
        """Returns bool `[classes, batch]`, True for the true classes."""
        numbers = tf.range(tf.shape(score, self._integer)[0])
        return numbers[:, None] == tf.cast(rows, self._integer)[None, :]

    def _scores(self, products, row_scalar, target, state):
        products = tf.cast(products, row_scalar.dtype)
        if not self.loss.normalized:
            score = products + row_scalar[:, None]
            return score, score, None, None
        cosine, winner = products * row_scalar[:, None], None
        if self.sub_centers > 1:
            cosine, winner = nearest(cosine, self.sub_centers)
        value, slope = self.loss.others(cosine, target, state)
        return cosine, value, slope, winner

    def _inward(self, weights, slope, row_scalar, winner):
        """Multiplies `weights` by the derivatives ∂value/∂product."""
        if self.loss.normalized:
            inward = row_scalar[:, None]
            if winner is not None:
                weights = weights if slope is None else weights * slope
                weights = scatter_to_centers(weights, winner, self.sub_centers)
            elif slope is not None:
                inward = slope * inward
            weights *= inward
        return self._emitted(weights)

    def _emitted(self, value):
        """Casts a pass's result for the next product where this saves memory."""
        return self.operand(value) if self.on_gpu else value
