"""Computes class-weight gradients, tile by tile, once the step's losses are known.

See `plsc_tf.heads.tiled_softmax` for the first pass.
"""

from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

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
        self.kernels = kernels
        self.tiles = tiles

    def pieces(self, pending: dict) -> Iterator[tuple]:
        """Yields the calling replica's tiles as arguments of `RowRules.update`.

        Args:
            pending: the `pending` of a `HeadStep`, or of `concatenate_parts`.

        Yields:
            (index of the tile, its variables, its sampled rows or None, the entries of
            `pending` for this tile).
        """
        shared = _without_tiles(pending)
        tiles = self.tiles(pending.get("chosen"))
        for index, start in enumerate(tiles.starts):
            part = shared | pending["tiles"][index] | {"rows": pending["rows"] - start}
            yield index, *tiles.handles(index), part

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
            part: the tile's entries of `pending`, from `pieces`.

        Returns:
            (`[classes, batch]` errors; `[classes]` multiple of w to subtract from the
            weight gradient, or bias gradient).
        """
        products = part.get("products")
        if products is None:
            products = self.kernels.products(flat(arrays["weight"]), part["inputs"])
        zero = part["log_total"]
        target = Target(zero, zero, hard_above=part.get("hard_above"))
        example = {k: part[k] for k in ("log_total", "target_error", "factor")}
        return self.kernels.errors(
            products, part["row_scalar"], part["rows"], target, part["state"], example
        )

    def weight_gradients(self, arrays: dict, part: dict) -> dict:
        """Computes gradients with respect to a tile's arrays.

        Args:
            arrays: the tile's arrays, `{"weight": [classes, emb], …}`.
            part: the tile's entries of `pending`, from `pieces`.

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
        weight = bias = rows = tf.zeros([], gram.dtype)
        for _, handles, chosen, part in self.pieces(pending):
            with tf.control_dependencies([weight, bias, rows]):
                arrays = self.kernels.read(handles, chosen)
                errors, extra = self.errors(arrays, part)
                errors = tf.cast(errors, gram.dtype)
                squares = tf.matmul(errors, errors, transpose_a=True)
                weight += tf.reduce_sum(squares * gram)
                if self.kernels.loss.normalized:
                    weight -= tf.reduce_sum(tf.square(extra / part["row_scalar"]))
                    # The first pass has already computed the norms of all rows.
                    rows += tf.reduce_sum(1.0 / tf.square(part["row_scalar"]))
                else:
                    bias += tf.reduce_sum(tf.square(extra))
                    rows += tf.reduce_sum(tf.square(arrays["weight"]))
        if self.kernels.loss.normalized:
            return {"weight": tf.maximum(weight, 0.0), "rows": rows}
        return {"weight": weight, "bias": bias, "rows": rows}


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
    tiles = [{"row_scalar": tile["row_scalar"]} for tile in joined["tiles"]]
    return joined | whole | {"tiles": tiles}
