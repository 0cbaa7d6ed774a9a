"""Computes class-weight gradients, tile by tile, once the step's losses are known.

See `plsc_tf.heads.tiled_softmax` for the first pass.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from plsc_tf.graphs import EachTile
from plsc_tf.heads.kernels import Kernels, flat
from plsc_tf.heads.margins import Target


class SecondPass:
    """Runs the second pass over a replica's tiles.

    Args:
        kernels: the `Kernels` of the first pass.
        tiles: function that returns the replica's tiles for sampled rows, or for None
            if all rows are used (`Head.tiles`).
    """

    def __init__(self, kernels: Kernels, tiles: Callable) -> None:
        self.kernels, self.tiles = kernels, tiles
        self._each_square = EachTile(self._squares_of_tile)

    def each_tile(self, pending: dict) -> tuple[list, list[int], dict]:
        """Returns the calling replica's tiles as arguments of an `EachTile`.

        Args:
            pending: the `pending` of a `HeadStep`, or of `concatenate_parts`.

        Returns:
            (for each tile, its variables, its sampled rows or None, and its own entries
            of `pending`; their first rows; the entries that all tiles share).
        """
        tiles, kept = self.tiles(pending.get("chosen")), pending["tiles"]
        own = itertools.chain(kept, itertools.repeat({}))
        each = [(*tile, one) for tile, one in zip(tiles.each, own, strict=False)]
        return each, tiles.starts, _without_tiles(pending)

    def pieces(self, pending: dict) -> Iterator[tuple]:
        """Yields (first row, variables, sampled rows or None, part) of each tile."""
        each, starts, shared = self.each_tile(pending)
        for (handles, chosen, own), start in zip(each, starts, strict=True):
            yield start, handles, chosen, part_of_tile(shared, own, start)

    def whole_gradients(self, pending: dict) -> list:
        """Computes each weight gradient in one piece, in the order of `Head.arrays()`.

        Returns:
            list of `[classes, emb]` and, with plain softmax, `[classes]`. Gradients of
            sharded weights are complete, gradients of replicated weights are the
            replica's share, and gradients of sampled classes are `tf.IndexedSlices` of
            the replica's rows.
        """
        parts: dict[str, list] = {}
        for _, handles, chosen, part in self.pieces(pending):
            arrays = self.kernels.read(handles, chosen)
            for name, (gradient, share) in self.weight_gradients(arrays, part).items():
                if share is not None:
                    gradient -= share[..., None] * arrays[name]
                parts.setdefault(name, []).append(gradient)
        whole = [tf.concat(values, axis=0) for values in parts.values()]
        if "chosen" in pending:
            whole = [tf.IndexedSlices(value, pending["chosen"]) for value in whole]
        return whole

    def errors(self, arrays: dict, part: dict) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes derivatives of the losses with respect to a tile's products.

        Args:
            arrays: the tile's arrays, `{"weight": [classes, emb], …}`.
            part: the tile's entries of `pending`, see `part_of_tile`.

        Returns:
            (`[classes, batch]` errors; `[classes]` multiple of w to subtract from the
            weight gradient, or bias gradient).
        """
        part = self._with_products(arrays, part)
        zero = part["log_total"]
        target = Target(zero, zero, hard_above=part.get("hard_above"))
        example = {k: part[k] for k in ("log_total", "target_error", "factor")}
        tensors = [part[name] for name in ("products", "row_scalar", "rows")]
        return self.kernels.errors(*tensors, target, part["state"], example)

    def _with_products(self, arrays, part):
        """Recomputes what the first pass has not kept of a tile."""
        if "products" in part:
            return part
        products = self.kernels.products(flat(arrays["weight"]), part["inputs"])
        row_scalar = self.kernels.row_scalar(arrays)
        return part | {"products": products, "row_scalar": row_scalar}

    def weight_gradients(self, arrays: dict, part: dict) -> dict:
        """Computes gradients with respect to a tile's arrays.

        Args:
            arrays: the tile's arrays, `{"weight": [classes, emb], …}`.
            part: the tile's entries of `pending`, see `part_of_tile`.

        Returns:
            `{"weight": (gradient [classes, emb], [classes] multiple of w to subtract
            from it)}`; with plain softmax,
            `{"weight": (gradient, None), "bias": (gradient, None)}`; with several
            centers per class, shapes are `[classes, sub_centers, …]`.
        """
        errors, extra = self.errors(arrays, part)
        inputs = part["inputs"] * part["factor"][:, None]
        gradient = self.kernels.gradient(errors, inputs)
        shape = arrays["weight"].shape
        if shape.rank == 3:  # noqa: PLR2004 - several centers per class
            gradient = tf.reshape(gradient, [-1, *shape[1:]])
            extra = tf.reshape(extra, [-1, shape[1]])
        if self.kernels.loss.normalized:
            return {"weight": (gradient, extra)}
        return {"weight": (gradient, None), "bias": (extra, None)}

    def square_norms(self, pending: dict) -> dict[str, tf.Tensor]:
        """Computes squared norms of the gradients of the replica's arrays, and of rows.

        The sum of ‖Σ_b e_cb x_b‖² over classes c equals Σ (EᵀE) ⊙ (X Xᵀ), which needs
        `[batch, batch]` instead of the whole gradient.

        Returns:
            `{"weight": scalar}`, with plain softmax also `"bias"`, and `"rows"`, the
            squared norm of the weights themselves that this step uses.
        """
        inputs = pending["inputs"] * pending["factor"][:, None]
        gram = tf.matmul(inputs, inputs, transpose_b=True)
        each, starts, shared = self.each_tile(pending)
        sums = dict.fromkeys(("weight", "bias", "rows"), tf.zeros([], gram.dtype))
        _, sums = self._each_square(each, starts, (shared, gram), sums)
        if self.kernels.loss.normalized:
            return {"weight": tf.maximum(sums["weight"], 0.0), "rows": sums["rows"]}
        return sums

    def _squares_of_tile(self, tile, start, shared, sums):
        """Adds one tile's squared norms to the sums."""
        (handles, chosen, own), (shared, gram) = tile, shared
        part = part_of_tile(shared, own, start)
        with tf.control_dependencies(list(sums.values())):
            arrays = self.kernels.read(handles, chosen)
            part = self._with_products(arrays, part)
            errors, extra = self.errors(arrays, part)
        errors = tf.cast(errors, gram.dtype)
        weight = tf.reduce_sum(tf.matmul(errors, errors, transpose_a=True) * gram)
        bias = tf.reduce_sum(tf.square(extra))
        if self.kernels.loss.normalized:
            weight -= tf.reduce_sum(tf.square(extra / part["row_scalar"]))
            rows = tf.reduce_sum(1.0 / tf.square(part["row_scalar"]))
        else:
            rows = tf.reduce_sum(tf.square(arrays["weight"]))
        found = {"weight": weight, "bias": bias, "rows": rows}
        return {}, {name: total + found[name] for name, total in sums.items()}


def part_of_tile(shared: dict, own: dict, start: Any) -> dict:
    """Returns the entries of `pending` for a tile, see `SecondPass.each_tile`."""
    return shared | own | {"rows": shared["rows"] - start}


def _without_tiles(pending):
    return {k: v for k, v in pending.items() if k not in ("tiles", "chosen")}


def concatenate_parts(pendings: Sequence[dict]) -> dict:
    """Joins the `pending` of a batch's parts, without the kept logits."""
    joined = pendings[0]
    if len(pendings) == 1:
        return joined
    parts = [_without_tiles(part) for part in pendings]
    for part in parts:
        size = part["rows"].shape
        part["state"] = {k: tf.broadcast_to(v, size) for k, v in part["state"].items()}
    whole = tf.nest.map_structure(lambda *values: tf.concat(values, axis=0), *parts)
    return joined | whole | {"tiles": []}
