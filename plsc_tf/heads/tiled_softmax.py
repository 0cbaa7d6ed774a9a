"""Cross entropy over classes that are split over replicas and worked on in tiles.

Every replica sees the inputs of the whole global batch and its own classes. What it
tells the others is a few numbers per example: the largest of its logits, the sum of
their exponentials. The first pass over the tiles forms, beside these, the sum of the
class weights weighted by their exponentials, rescaled whenever a larger logit comes
up (the online softmax of Milakov and Gimelshein, arXiv:1805.02867, carried over to
the gradient as in FlashAttention, arXiv:2205.14135). So the gradient of the inputs is
known after one pass, and a second one (`second_pass`) makes the gradients of the
weights, tile by tile, from logits that were kept or are computed again. Nothing of
the size of all logits or all weights has to exist, and no collective runs under a
gradient tape.

The true class is kept apart from the sums, since only its logit has a margin.
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
    """The global batch as a replica's head sees it; `batch` is its size.

    Attributes:
        tiles: of the replica's classes.
        chosen: rows of them that take part, or None for all.
        own: `[own batch, emb]` the replica's embeddings, of length 1 for margin losses.
        inverse: `[own batch, 1]` of `kernels.normalize`, or None.
        inputs: `[batch, emb]`, of length 1 for margin losses.
        rows: int32 `[batch]` row of the true class among the replica's, else −1.
        toward: `[batch, emb]` of `TiledSoftmax.true_class`.
        upstream: `[batch]` derivative of the objective by each loss.
        score: `[batch]` score of the true class without margin, from any replica.
        target: the loss's `Target`.
        state: of the loss.
    """

    tiles: LocalTiles | SampledTiles
    chosen: tf.Tensor | None
    own: tf.Tensor
    inverse: tf.Tensor | None
    inputs: tf.Tensor
    rows: tf.Tensor
    toward: tf.Tensor
    upstream: tf.Tensor
    score: tf.Tensor
    target: Target
    state: dict


@dataclasses.dataclass
class FirstPass:
    """What a replica finds in its own classes.

    Attributes:
        statistics: `[batch, 2 or 3]`: largest logit, Σ exp(logit − largest), and with
            smoothing Σ logits; all without the true class.
        above: int32 `[batch]` scores above the true class's, or None.
        pulled: `[batch, emb]` Σ exp(logit − largest) ∂value/∂input; None where no
            gradients are wanted, and so are the following.
        even: `[batch, emb]` Σ ∂value/∂input with smoothing, else None.
        offsets: for every tile `[classes]` 1 / ‖w‖, or biases.
        kept: for every tile its products `[classes, batch]`, or None.
    """

    statistics: tf.Tensor
    above: tf.Tensor | None
    pulled: tf.Tensor | None
    even: Any
    offsets: list
    kept: list


class TiledSoftmax:
    """The first pass over a replica's tiles, and what joins the replicas.

    Args:
        kernels: the `Kernels`.
        logits_bytes: limit for the products `[classes, batch]` that are kept from the
            first pass to the second.
    """

    def __init__(self, kernels: Kernels, logits_bytes: float) -> None:
        self.kernels = kernels
        self.even_share = kernels.even_share
        self.logits_bytes = logits_bytes
        self._first_tile = apart(self._first_pass_of_tile)

    def true_class(
        self, tiles: LocalTiles | SampledTiles, inputs: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Weights and scores of the true classes that are on this replica.

        Returns:
            (`[batch, emb]` ∂score/∂input, `[batch]` score without margin); both 0
            where the class is elsewhere.
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
        """Statistics and gradients of a replica's own classes: a `FirstPass`."""
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
            # Each tile waits for the one before through what runs.
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
        """Takes one tile into what runs over the tiles.

        Args:
            handles: of the tile's arrays.
            chosen: rows of them that take part, or None.
            inputs: `[batch, emb]`.
            rows: int32 `[batch]` row of the true class, if it is in this tile.
            target: the `Target` of the examples.
            state: of the loss.
            score: `[batch]` of the true classes.
            running: dict of tensors, "pulled" among them where gradients are wanted.

        Returns:
            (products `[classes, batch]`, `[classes]` 1 / ‖w‖ or biases, what runs);
            the first two are None without gradients.
        """
        arrays = read(handles, chosen)
        weight, offset = flat(arrays["weight"]), self._offset(arrays)
        # Before all else, so that nothing of this tile exists while another is
        # worked on.
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
        """`[batch]` sum of the tile's exponentials."""
        if "total" in found:
            return found["total"]
        # What the pull was multiplied with is taken out again by a product, which is
        # several times faster than another sum by columns.
        outward = 1.0 / offset if self.kernels.loss.normalized else tf.ones_like(offset)
        return tf.linalg.matvec(found["pull"], outward, transpose_a=True)

    def combine(
        self, statistics: tf.Tensor, examples: Examples
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Joins what all replicas found.

        Args:
            statistics: `[num_replicas, batch, 2 or 3]` of all first passes.
            examples: the `Examples`.

        Returns:
            (`[batch]` losses, dict of `[batch]` that the second pass needs).
        """
        target = examples.target
        logit = self.kernels.scale * target.value
        maximum = tf.maximum(tf.reduce_max(statistics[:, :, 0], axis=0), logit)
        others = tf.reduce_sum(
            statistics[:, :, 1] * tf.exp(statistics[:, :, 0] - maximum), axis=0
        )
        total = others + tf.exp(logit - maximum)
        log_total = maximum + tf.math.log(total)
        # Not exp(logit - log_total) - 1, which loses all digits as it nears 0.
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
            "factor": self.kernels.scale * examples.upstream,
        }

    def input_gradients(
        self, first: FirstPass, examples: Examples, example: dict
    ) -> tf.Tensor:
        """A replica's share of the gradients by the inputs, `[batch, emb]`.

        Args:
            first: the `FirstPass`.
            examples: the `Examples`.
            example: dict of `combine`.
        """
        weight = tf.exp(first.statistics[:, 0] - example["log_total"])
        gradient = weight[:, None] * first.pulled
        gradient += example["target_error"][:, None] * examples.toward
        if self.even_share:
            gradient -= self.even_share * first.even
        return example["factor"][:, None] * gradient

    def norm_gradients(self, examples: Examples, example: dict) -> tf.Tensor | None:
        """`[batch]` gradient by ‖x‖ of a loss that looks at it, else None."""
        target = examples.target
        if target.norm_slope is None:
            return None
        gradient = example["factor"] * example["error"] * target.norm_slope
        if target.penalty_slope is not None:
            gradient += examples.upstream * target.penalty_slope
        return gradient

    def pending(
        self, first: FirstPass, examples: Examples, example: dict
    ) -> dict[str, tf.Tensor]:
        """What the second pass needs, as a flat dict of tensors."""
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
        # One pass at the speed of the memory, unlike XLA's sum over the last axis.
        norms = tf.math.reduce_euclidean_norm(flat(arrays["weight"]), axis=1)
        return 1.0 / tf.maximum(norms, TINY**0.5)
