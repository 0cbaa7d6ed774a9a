"""What a head does to one tile of logits, element by element.

Each function is compiled by XLA into one or two passes over `[classes, batch]`; the
matrix products around them are TensorFlow's, whose kernels are faster on CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from plsc_tf.heads import sub_centers as centers

if TYPE_CHECKING:
    from plsc_tf.heads.margins import MarginLoss

# Takes the place of the logits of true classes, which are kept apart.
LOWEST = -1e30


class Kernels:
    """Elementwise passes over a tile, for one loss.

    Args:
        loss: the `MarginLoss`.
        scale: factor of the cosines; 1 for plain softmax.
        smoothing: label smoothing divided by the number of classes; 0 for none.
        bounded: whether the sum of the exponentials of all logits is sure to fit, so
            that no largest logit has to be taken off first.
        compiled: whether XLA compiles them. It takes a while for each shape of tile,
            which is lost on small ones.
        sub_centers: rows per class, of which the nearest one counts. With more than
            one, `products` and `offset` below have so many rows per class, as have
            the results that are as long; `rows` still counts classes.
    """

    def __init__(
        self,
        loss: MarginLoss,
        scale: float,
        smoothing: float,
        *,
        bounded: bool,
        compiled: bool,
        sub_centers: int = 1,
    ) -> None:
        self.loss = loss
        self.scale = scale
        self.smoothing = smoothing
        self.bounded = bounded
        self.sub_centers = sub_centers
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
        if self.smoothing:
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
        error = tf.exp(self.scale * value - example["log_total"]) - self.smoothing
        if slope is not None:
            error *= slope
        error = tf.where(hit, example["target_error"], error)
        if not self.loss.normalized:
            return error, tf.reduce_sum(error * example["factor"], axis=1)
        # w / ‖w‖ does not change with what points along w.
        along = error * score * example["factor"]
        if winner is not None:
            error = centers.spread(error, winner, self.sub_centers)
            along = centers.spread(along, winner, self.sub_centers)
        along = tf.reduce_sum(along, axis=1)
        return error * offset[:, None], along * tf.square(offset)

    def _scores(self, products, offset, target, state):
        if not self.loss.normalized:
            score = products + offset[:, None]
            return score, score, None, None
        cosine, winner = products * offset[:, None], None
        if self.sub_centers > 1:
            cosine, winner = centers.nearest(cosine, self.sub_centers)
        value, slope = self.loss.others(cosine, target, state)
        return cosine, value, slope, winner

    def _inward(self, weights, slope, offset, winner):
        """The weights of the values, times d value / d product."""
        if not self.loss.normalized:
            return weights
        if winner is not None:
            weights = weights if slope is None else weights * slope
            return centers.spread(weights, winner, self.sub_centers) * offset[:, None]
        return weights * (offset[:, None] if slope is None else slope * offset[:, None])


def _compiled(function):
    return tf.function(function, autograph=False, jit_compile=True)
