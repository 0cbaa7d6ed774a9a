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

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from plsc_tf.heads.kernels import LOWEST, TINY, Kernels, flat, pick_nearest, product
from plsc_tf.heads.layout import kept_tiles
from plsc_tf.heads.tiles import apart, read

if TYPE_CHECKING:
    from plsc_tf.heads.margins import Target
    from plsc_tf.heads.tiles import LocalTiles, SampledTiles


@dataclasses.dataclass
class Examples:
    """A replica's input for one step; `batch` is the size of the global batch.

    Attributes:
        tiles: the tiles of the replica's classes.
        chosen: the sampled rows of those tiles, or None for all rows.
        own: `[own batch, emb]` the replica's own embeddings, normalized to length 1
            for margin losses.
        inverse: `[own batch, 1]` 1 / ‖x‖ from `kernels.normalize`, or None.
        inputs: `[batch, emb]` embeddings, normalized to length 1 for margin losses.
        rows: int32 `[batch]` row of the true class on this replica, or −1 if another
            replica holds it.
        toward: `[batch, emb]` ∂score/∂input from `TiledSoftmax.true_class`.
        sample_weights: `[batch]` derivative of the objective with respect to each loss.
        score: `[batch]` score of the true class without margin, whichever replica
            holds the class.
        target: the loss function's `Target`.
        state: the loss function's state.
    """

    tiles: LocalTiles | SampledTiles
    chosen: tf.Tensor | None
    own: tf.Tensor
    inverse: tf.Tensor | None
    inputs: tf.Tensor
    rows: tf.Tensor
    toward: tf.Tensor
    sample_weights: tf.Tensor
    score: tf.Tensor
    target: Target
    state: dict


@dataclasses.dataclass
class FirstPass:
    """The result of the first pass over a replica's own classes.

    Attributes:
        statistics: `[batch, 2 or 3]`: the largest logit, Σ exp(logit − largest), and,
            with label smoothing, Σ logits; all exclude the true class.
        above: int32 `[batch]` number of scores above the true class's score, or None.
        pulled: `[batch, emb]` Σ exp(logit − largest) ∂value/∂input, or None if
            gradients are not computed.
        even: `[batch, emb]` Σ ∂value/∂input with label smoothing, or None.
        offsets: 1 / ‖w‖ or biases, `[classes]` for each tile; empty if gradients are
            not computed.
        kept: products `[classes, batch]` for each tile, or None for a tile whose
            products are recomputed; empty if gradients are not computed.
    """

    statistics: tf.Tensor
    above: tf.Tensor | None
    pulled: tf.Tensor | None
    even: Any
    offsets: list
    kept: list


class TiledSoftmax:
    """Runs the first pass over a replica's tiles and combines the replicas' results.

    Args:
        kernels: the head's `Kernels`.
        logits_bytes: maximum size in bytes of the products `[classes, batch]` that
            the first pass keeps for the second.
    """

    def __init__(self, kernels: Kernels, logits_bytes: float) -> None:
        self.kernels = kernels
        self.even_share = kernels.even_share
        self.logits_bytes = logits_bytes
        self._first_tile = apart(self._first_pass_of_tile)

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
            toward = here[:, None] * weight
            return toward, tf.reduce_sum(toward * inputs, axis=1)
        score = tf.reduce_sum(weight * inputs, axis=1) + picked["bias"]
        return here[:, None] * weight, here * score

    def first_pass(
        self, examples: Examples, with_ranks: bool, gradients: bool = True
    ) -> FirstPass:
        """Computes the statistics and gradients of a replica's own classes."""
        tiles, zero = examples.tiles, tf.zeros_like(examples.score)
        maximum = zero if self.kernels.bounded else zero + LOWEST
        running = {"maximum": maximum, "total": zero}
        if gradients:
            running["pulled"] = tf.zeros_like(examples.inputs)
        if with_ranks:
            running["above"] = tf.zeros_like(zero, tf.int32)
        if self.even_share:
            running["logits"] = zero
            if gradients:
                running["even"] = tf.zeros_like(examples.inputs)
        row_bytes = self.kernels.sub_centers * zero.dtype.size * (zero.shape[0] or 0)
        count = kept_tiles(tiles.sizes, row_bytes, self.logits_bytes)
        offsets, kept = [], []
        for index, start in enumerate(tiles.starts):
            # Passing `running` on makes each tile wait for the previous one.
            products, offset, running = self._first_tile(
                *tiles.handles(index),
                examples.inputs,
                examples.rows - start,
                examples.target,
                examples.state,
                examples.score,
                running,
            )
            if not gradients:
                continue
            kept.append(products if index < count else None)
            offsets.append(offset)
        columns = [running["maximum"], running["total"]]
        if self.even_share:
            columns.append(running["logits"])
        return FirstPass(
            statistics=tf.stack(columns, axis=1),
            above=running.get("above"),
            pulled=running.get("pulled"),
            even=running.get("even"),
            offsets=offsets,
            kept=kept,
        )

    def _first_pass_of_tile(
        self, handles, chosen, inputs, rows, target, state, score, running
    ):
        """Adds one tile to the running results.

        Args:
            handles: the variables of the tile, see `tiles.read`.
            chosen: the sampled rows of those variables, or None for all rows.
            inputs: `[batch, emb]` embeddings.
            rows: int32 `[batch]` row of the true class in this tile; outside the tile's
                range if the class isn't in it.
            target: the examples' `Target`.
            state: the loss function's state.
            score: `[batch]` scores of the true classes.
            running: dict of running results, with "pulled" if gradients are computed.

        Returns:
            (products `[classes, batch]`, `[classes]` 1 / ‖w‖ or biases, updated
            running results); the first two are None if gradients are not computed.
        """
        arrays = read(handles, chosen)
        weight, offset = flat(arrays["weight"]), self._offset(arrays)
        # The tile's first large tensor waits for the previous tile, so the tensors of
        # only one tile exist at a time.
        with_gradients = "pulled" in running
        last = running["pulled" if with_gradients else "total"]
        with tf.control_dependencies([last]):
            products = product(weight, inputs, self.kernels.dtype, transpose_b=True)
        found = self.kernels.forward(
            products,
            offset,
            rows,
            target,
            state,
            score,
            running["maximum"],
            "above" in running,
        )
        total, result = running["total"], dict(running)
        if "shrink" in found:
            result["maximum"] = found["maximum"]
            total *= found["shrink"]
        result["total"] = total + self._total(found, offset)
        if "above" in running:
            result["above"] = running["above"] + found["above"]
        if self.even_share:
            result["logits"] = running["logits"] + found["logits"]
        if not with_gradients:
            return None, None, result
        pull = product(found["pull"], weight, self.kernels.dtype, transpose_a=True)
        pulled = running["pulled"]
        if "shrink" in found:
            pulled *= found["shrink"][:, None]
        result["pulled"] = pulled + pull
        if self.even_share:
            even = product(found["even"], weight, self.kernels.dtype, transpose_a=True)
            result["even"] = running["even"] + even
        return products, offset, result

    def _total(self, found, offset):
        """Returns the `[batch]` sum of the tile's exponentials."""
        if "total" in found:
            return found["total"]
        # A matrix-vector product divides the pull by its factor `offset` and sums it;
        # this is several times faster than another sum over columns.
        outward = 1.0 / offset if self.kernels.loss.normalized else tf.ones_like(offset)
        return tf.linalg.matvec(found["pull"], outward, transpose_a=True)

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
        others = tf.reduce_sum(
            statistics[:, :, 1] * tf.exp(statistics[:, :, 0] - maximum), axis=0
        )
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
        return losses, {
            "log_total": log_total,
            "target_error": error * target.slope,
            "error": error,
            "factor": self.kernels.scale * examples.sample_weights,
        }

    def input_gradients(
        self, first: FirstPass, examples: Examples, example: dict
    ) -> tf.Tensor:
        """Computes a replica's share of the input gradients, `[batch, emb]`.

        Args:
            first: the `FirstPass`.
            examples: the `Examples`.
            example: the dict returned by `combine`.
        """
        weight = tf.exp(first.statistics[:, 0] - example["log_total"])
        gradient = weight[:, None] * first.pulled
        gradient += example["target_error"][:, None] * examples.toward
        if self.even_share:
            gradient -= self.even_share * first.even
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
        self, first: FirstPass, examples: Examples, example: dict
    ) -> dict[str, tf.Tensor]:
        """Returns the inputs of the second pass as a flat dict of tensors."""
        tensors = {
            "inputs": examples.inputs,
            "rows": examples.rows,
            **{name: example[name] for name in ("log_total", "target_error", "factor")},
            **{f"state.{name}": v for name, v in examples.state.items()},
        }
        if examples.chosen is not None:
            tensors["chosen"] = examples.chosen
        if examples.target.hard_above is not None:
            tensors["hard_above"] = examples.target.hard_above
        for index, products in enumerate(first.kept):
            tensors[f"offset.{index}"] = first.offsets[index]
            if products is not None:
                tensors[f"products.{index}"] = products
        return tensors

    def _offset(self, arrays):
        if not self.kernels.loss.normalized:
            return arrays["bias"]
        # This runs at memory speed, unlike XLA's sum over the last axis.
        norms = tf.math.reduce_euclidean_norm(flat(arrays["weight"]), axis=1)
        return 1.0 / tf.maximum(norms, TINY**0.5)
