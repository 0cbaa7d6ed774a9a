"""Cross entropy over classes split across replicas and processed in tiles.

Every replica sees the inputs of the whole global batch and holds its own classes.
Replicas exchange only a few numbers per example, such as the largest logit and the sum
of the exponentials of the logits. The first pass over the tiles also accumulates the
sum of the class weights, each weighted by its exponential, and rescales it whenever a
larger logit appears. This is the online softmax of Milakov and Gimelshein
(arXiv:1805.02867), extended to the gradient as in FlashAttention (arXiv:2205.14135).
The gradient with respect to the inputs is therefore known after one pass. A second
pass (`second_pass`) computes the weight gradients, tile by tile, from logits that were
kept or are recomputed. No tensor as large as all logits or all weights is needed, and
no collective runs under a gradient tape.

The true class is kept out of the sums, since only its logit has a margin.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from plsc_tf.graphs import EachTile
from plsc_tf.heads.kernels import LOWEST, TINY, Kernels, flat, pick_nearest
from plsc_tf.heads.layout import kept_tiles
from plsc_tf.heads.margins import Target
from plsc_tf.heads.tiles import LocalTiles, SampledTiles


@dataclasses.dataclass
class Examples:
    """A replica's input for one step; `batch` is the size of the global batch.

    Attributes:
        tiles: the tiles of the replica's classes.
        chosen: the sampled rows of those tiles, or None for all rows.
        inputs: `[batch, emb]` embeddings, normalized to length 1 for margin losses.
        rows: int64 `[batch]` row of the true class on this replica, or −1 if another
            replica holds it.
        true_center: `[batch, emb]` ∂score/∂input from `TiledSoftmax.true_class`.
        sample_weights: `[batch]` derivative of the objective with respect to each loss.
        score: `[batch]` score of the true class without margin, whichever replica
            holds the class.
        target: the loss function's `Target`.
        state: the loss function's state.
    """

    tiles: LocalTiles | SampledTiles
    chosen: tf.Tensor | None
    inputs: tf.Tensor
    rows: tf.Tensor
    true_center: tf.Tensor
    sample_weights: tf.Tensor
    score: tf.Tensor
    target: Target
    state: dict


class TiledSoftmax:
    """Runs the first pass over a replica's tiles and combines the replicas' results.

    Args:
        kernels: the head's `Kernels`.
        logits_bytes: maximum size in bytes of the products `[classes, batch]` that
            the first pass keeps for the second.
    """

    def __init__(self, kernels: Kernels, logits_bytes: float) -> None:
        self.kernels, self.even_share = kernels, kernels.even_share
        self.logits_bytes = logits_bytes
        self._each_tile = EachTile(self._first_pass_of_tile)

    def true_class(
        self, tiles: LocalTiles | SampledTiles, inputs: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes scores, and their gradients, of the true classes on this replica.

        Returns:
            (`[batch, emb]` ∂score/∂input, `[batch]` score without margin); both are 0
            if another replica holds the class.
        """
        picked = tiles.pick(rows)
        here = tf.cast(rows >= 0, inputs.dtype)
        weight = pick_nearest(picked["weight"], inputs)
        if self.kernels.loss.normalized:
            square = tf.reduce_sum(weight * weight, axis=1)
            here *= tf.math.rsqrt(tf.maximum(square, TINY))
            center = here[:, None] * weight
            return center, tf.reduce_sum(center * inputs, axis=1)
        score = tf.reduce_sum(weight * inputs, axis=1) + picked["bias"]
        return here[:, None] * weight, here * score

    def first_pass(
        self, examples: Examples, with_ranks: bool, gradients: bool = True
    ) -> tuple[dict[str, tf.Tensor], list[dict[str, tf.Tensor]]]:
        """Computes the statistics and gradients of a replica's own classes.

        Returns:
            (sums, kept). `sums` are over the replica's classes without the true class:
            `maximum` `[batch]`, the largest logit; `total` `[batch]`,
            Σ exp(logit − maximum); with gradients, `gradient` `[batch, emb]`,
            Σ exp(logit − maximum) ∂value/∂input; with ranks, `above` int64 `[batch]`,
            the number of other scores that are at least as high; with label smoothing,
            `logits` `[batch]`, Σ logits, and with gradients `even_gradient`
            `[batch, emb]`, Σ ∂value/∂input. `kept` has an entry of `pending` for each
            of the first tiles, up to `logits_bytes`: `products` `[classes, batch]` and
            `row_scalar` `[classes]`, 1 / ‖w‖ or biases; the second pass recomputes the
            others.
        """
        tiles, zero = examples.tiles, tf.zeros_like(examples.score)
        maximum = zero if self.kernels.bounded else zero + LOWEST
        sums = {"maximum": maximum, "total": zero}
        if gradients:
            sums["gradient"] = tf.zeros_like(examples.inputs)
        if with_ranks:
            sums["above"] = tf.zeros_like(zero, tf.int64)
        if self.even_share:
            sums["logits"] = zero
            if gradients:
                sums["even_gradient"] = tf.zeros_like(examples.inputs)
        columns = self.kernels.sub_centers * (zero.shape[0] or 0)
        row_bytes = tf.as_dtype(self.kernels.dtype).size * columns
        count = kept_tiles(tiles.sizes, row_bytes, self.logits_bytes)
        each = [(*tile, i < count) for i, tile in enumerate(tiles.each)]
        names = "rows", "inputs", "score", "target", "state"
        shared = [getattr(examples, name) for name in names]
        # Passing `sums` on makes each tile wait for the previous one.
        kept, sums = self._each_tile(each, tiles.starts, shared, sums)
        return sums, kept[:count]

    def statistics(self, sums: dict[str, tf.Tensor]) -> tf.Tensor:
        """Stacks the sums that replicas exchange, `[batch, 2 or 3]`."""
        columns = [sums["maximum"], sums["total"]]
        if self.even_share:
            columns.append(sums["logits"])
        return tf.stack(columns, axis=1)

    def _first_pass_of_tile(self, tile, start, shared, sums):
        """Adds one tile to the sums.

        Args:
            tile: the variables of the tile and its sampled rows, see `tiles.read`, and
                whether its products are kept.
            start: number of the tile's first row.
            shared: `rows`, `inputs`, `score`, `target` and `state` of the `Examples`.
            sums: the sums of the previous tiles, see `first_pass`.

        Returns:
            (what is kept of the tile, see `first_pass`; new sums).
        """
        (handles, chosen, keep), (rows, inputs, score, target, state) = tile, shared
        rows -= start  # outside the tile's range if the true class isn't in it
        arrays = self.kernels.read(handles, chosen)
        weight, row_scalar = flat(arrays["weight"]), self.kernels.row_scalar(arrays)
        # The tile's first large tensor waits for the previous tile, so the tensors of
        # only one tile exist at a time.
        with_gradients, with_ranks = "gradient" in sums, "above" in sums
        with tf.control_dependencies([sums["gradient" if with_gradients else "total"]]):
            operand = self.kernels.operand(weight)
            products = self.kernels.products(operand, inputs)
        maximum = sums["maximum"]
        found = self.kernels.forward(
            products, row_scalar, rows, target, state, score, maximum, with_ranks
        )
        total, result = sums["total"], dict(sums)
        if "shrink" in found:
            result["maximum"] = found["maximum"]
            total *= found["shrink"]
        result["total"] = total + self._total(found, row_scalar)
        if with_ranks:
            result["above"] = sums["above"] + found["above"]
        if self.even_share:
            result["logits"] = sums["logits"] + found["logits"]
        if not with_gradients:
            return {}, result
        gradient = self.kernels.gradient(found["numerator"], operand, transpose_a=True)
        previous = sums["gradient"]
        if "shrink" in found:
            previous *= found["shrink"][:, None]
        result["gradient"] = previous + gradient
        if self.even_share:
            even = self.kernels.gradient(found["even_slope"], operand, transpose_a=True)
            result["even_gradient"] = sums["even_gradient"] + even
        return {"products": products, "row_scalar": row_scalar} if keep else {}, result

    def _total(self, found, row_scalar):
        """Returns the `[batch]` sum of the tile's exponentials."""
        if "total" in found:
            return found["total"]
        # A matrix-vector product divides the numerators by `row_scalar`, their factor,
        # and sums them; this is several times faster than another sum over columns.
        outward = tf.ones_like(row_scalar)
        if self.kernels.loss.normalized:
            outward = 1.0 / row_scalar
        return tf.linalg.matvec(found["numerator"], outward, transpose_a=True)

    def combine(
        self, statistics: tf.Tensor, examples: Examples
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Combines the statistics of all replicas into losses.

        Args:
            statistics: `[num_replicas, batch, 2 or 3]` statistics of all replicas'
                first passes.
            examples: the `Examples`.

        Returns:
            (`[batch]` losses, dict of `[batch]` tensors for the gradients).
        """
        target = examples.target
        logit = self.kernels.scale * target.value
        maximum = tf.maximum(tf.reduce_max(statistics[:, :, 0], axis=0), logit)
        shrink = tf.exp(statistics[:, :, 0] - maximum)
        others = tf.reduce_sum(statistics[:, :, 1] * shrink, axis=0)
        total = others + tf.exp(logit - maximum)
        log_total = maximum + tf.math.log(total)
        # exp(logit - log_total) - 1 would lose all digits near 0.
        error = -others / total
        losses = (maximum - logit) + tf.math.log(total)
        if self.even_share:
            logits = tf.reduce_sum(statistics[:, :, 2], axis=0) + logit
            losses += self.kernels.label_smoothing * logit - self.even_share * logits
            error += self.kernels.label_smoothing - self.even_share
        if target.penalty is not None:
            losses += target.penalty
        errors = {"target_error": error * target.slope, "error": error}
        factor = self.kernels.scale * examples.sample_weights
        return losses, {"log_total": log_total, **errors, "factor": factor}

    def input_gradients(
        self, sums: dict[str, tf.Tensor], examples: Examples, example: dict
    ) -> tf.Tensor:
        """Computes a replica's share of the input gradients, `[batch, emb]`.

        Args:
            sums: the sums of `first_pass`.
            examples: the `Examples`.
            example: the dict returned by `combine`.
        """
        weight = tf.exp(sums["maximum"] - example["log_total"])
        gradient = weight[:, None] * sums["gradient"]
        gradient += example["target_error"][:, None] * examples.true_center
        if self.even_share:
            gradient -= self.even_share * sums["even_gradient"]
        return example["factor"][:, None] * gradient

    def norm_gradients(self, examples: Examples, example: dict) -> tf.Tensor | None:
        """Returns the `[batch]` gradient with respect to ‖x‖; None if it isn't used."""
        target = examples.target
        if target.norm_slope is None:
            return None
        gradient = example["factor"] * example["error"] * target.norm_slope
        if target.penalty_slope is not None:
            gradient += examples.sample_weights * target.penalty_slope
        return gradient

    def pending(
        self, kept: list[dict], examples: Examples, example: dict
    ) -> dict[str, Any]:
        """Returns the inputs of the second pass, a nested dict of tensors."""
        pending = {
            "inputs": examples.inputs,
            "rows": examples.rows,
            **{name: example[name] for name in ("log_total", "target_error", "factor")},
            "state": examples.state,
            "tiles": kept,
        }
        if examples.chosen is not None:
            pending["chosen"] = examples.chosen
        if examples.target.hard_above is not None:
            pending["hard_above"] = examples.target.hard_above
        return pending
