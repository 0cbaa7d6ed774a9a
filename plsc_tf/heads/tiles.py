"""Tiles of the classes that a replica processes in a step, and its collectives."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from plsc_tf.graphs import EachTile, with_xla
from plsc_tf.heads.layout import COMPILE_ROWS, sample_size, tile_sizes
from plsc_tf.parallel import collectives, packing
from plsc_tf.parallel.rows import RowSplit
from plsc_tf.pseudorandom import draw


class LocalTiles:
    """The tiles of all classes that a replica holds.

    Args:
        arrays: `{"weight": rows}` from `Head.arrays`, with plain softmax also `"bias"`.
        compiled: whether XLA compiles `pick`, which saves a GPU several tiny kernels
            per tile.

    Attributes:
        sizes: number of rows of each tile; None if unknown.
        starts: first row of each tile.
        each: (variables, sampled rows or None) of each tile, the arguments of `read`.
    """

    def __init__(self, arrays: dict, compiled: bool = False) -> None:
        self.pick = with_xla(self._pick, compiled)
        self._each_tile = EachTile(self._picked)
        tiles = {name: rows.local() for name, rows in arrays.items()}
        self.sizes = [tile.shape[0] for tile in tiles["weight"]]
        self.starts = list(range(0, sum(self.sizes), arrays["weight"].tile_rows))
        count = len(self.sizes)
        self.each = [({k: v[i] for k, v in tiles.items()}, None) for i in range(count)]

    def _pick(self, rows):
        """Reads rows of the arrays, `{"weight": [batch, emb], …}`.

        The result of a row −1 is arbitrary.
        """
        # Passing the result on makes each tile wait for the previous one: together,
        # they would need one copy of `[batch, emb]` per tile.
        return self._each_tile(self.each, self.starts, rows, {})[1]

    def _picked(self, tile, start, rows, picked):
        """Replaces those rows in `picked` that are in a tile."""
        (variables, _), rows = tile, rows - start
        here = tf.logical_and(rows >= 0, rows < variables["weight"].shape[0])
        rows, result = tf.where(here, rows, 0), {}
        for name, values in variables.items():
            found = packing.unpack(tf.gather(tf.convert_to_tensor(values), rows))
            fits = tf.reshape(here, [-1] + [1] * (found.shape.rank - 1))
            result[name] = tf.where(fits, found, picked.get(name, 0.0))
        return {}, result


class SampledTiles:
    """The tiles of the sampled classes of a replica's shard (Partial FC).

    It has the attributes of `LocalTiles`.

    Args:
        arrays: `{"weight": rows}` of sparse `ShardedRows`, with plain softmax also
            `"bias"`.
        chosen: int64 `[sample]` sampled rows of the shard, ascending.
        tile_rows: number of rows in a tile.
    """

    def __init__(self, arrays: dict, chosen: tf.Tensor, tile_rows: int) -> None:
        self._variables = {name: rows.local()[0] for name, rows in arrays.items()}
        self._chosen = chosen
        count = chosen.shape[0]  # None while tracing
        self.sizes = [None] if count is None else tile_sizes(count, tile_rows)
        self.starts = [tile_rows * i for i in range(len(self.sizes))]
        tiles = zip(self.starts, self.sizes, strict=True)
        parts = (chosen[start : size and start + size] for start, size in tiles)
        self.each = [(self._variables, part) for part in parts]

    def pick(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Reads rows of the arrays, `{"weight": [batch, emb], …}`.

        The result of a row −1 is arbitrary.
        """
        return read(self._variables, tf.gather(self._chosen, tf.maximum(rows, 0)))


def read(
    handles: dict, chosen: tf.Tensor | None, unpack: Callable = packing.unpack
) -> dict[str, tf.Tensor]:
    """Reads the arrays of a tile: `{"weight": [classes, emb], …}`.

    Args:
        handles: `{name: variable or tensor}`.
        chosen: int64 rows to read, or None for all rows.
        unpack: `packing.unpack`, or a compiled one.
    """
    if chosen is None:
        return {name: unpack(tf.convert_to_tensor(v)) for name, v in handles.items()}
    return {name: unpack(v.sparse_read(chosen)) for name, v in handles.items()}


def locate(
    labels: tf.Tensor, first: Any, count: Any, chosen: tf.Tensor | None = None
) -> tf.Tensor:
    """Locates the true classes among the classes that a replica processes.

    Args:
        labels: int64 `[batch]`.
        first: label of the shard's first class.
        count: number of classes in the shard.
        chosen: ascending int64 sampled rows of the shard, including the rows of all
            true classes; None for all rows.

    Returns:
        int64 `[batch]` row of each true class, or −1 if another replica holds it.
    """
    rows = labels - first
    here = tf.logical_and(rows >= 0, rows < count)
    if chosen is not None:
        rows = tf.searchsorted(chosen, tf.where(here, rows, 0), out_type=tf.int64)
    return tf.where(here, rows, -1)


def sample_rows(rows: tf.Tensor, count: Any, rate: float, seed: tuple) -> tf.Tensor:
    """Samples a replica's rows: all true classes and a random choice of others.

    As in arcface_torch (PartialFC_V2), `rate · count` classes are sampled. If there are
    more true classes than that, exactly the true classes are sampled.

    Args:
        rows: int64 `[global_batch]` rows of the true classes; rows outside [0, count)
            belong to other replicas.
        count: number of classes on the replica.
        rate: share of the classes to sample, in (0, 1).
        seed: (seed, replica, step); equal seeds give equal samples.

    Returns:
        int64 `[sample]` sampled rows, ascending; the size is static unless the batch is
        larger than the sample.
    """
    size = sample_size(count, rate)
    true_rows = tf.boolean_mask(rows, tf.logical_and(rows >= 0, rows < count))
    true_rows = tf.unique(true_rows).y
    first, replica, step = seed
    seed_here = (first << 16) + replica
    drawn = with_xla(draw, size >= COMPILE_ROWS)(size, count, step, seed_here)
    chosen = tf.unique(tf.concat([true_rows, drawn], axis=0)).y
    if (rows.shape[0] or count) > size:
        return tf.sort(chosen[: tf.maximum(tf.size(true_rows), size)])
    return tf.ensure_shape(tf.sort(chosen[:size]), [size])


class Exchange:
    """Runs the collectives between a head's replicas.

    If each replica holds a part of the classes, it processes the examples of the global
    batch. If each replica holds all classes, it processes only its own examples.

    Args:
        num_classes: number of classes.
        split: the `RowSplit` of the classes, or None if each replica holds all.
    """

    def __init__(self, num_classes: int, split: RowSplit | None) -> None:
        self.num_classes, self.split = num_classes, split

    def local_classes(self) -> tuple:
        """Returns (first class of the calling replica, number of its classes)."""
        if self.split is None:
            return 0, self.num_classes
        replica = collectives.replica_id()
        return self.split.first(replica), self.split.size(replica)

    def gather(self, values: Any) -> Any:
        """Gathers `[batch, ...]` of all examples that the replica processes.

        Lists of tensors are accepted as well.
        """
        return values if self.split is None else collectives.all_gather(values)

    def gather_global(self, values: Any) -> Any:
        """Gathers `[global_batch, ...]` from the result of `gather`."""
        return collectives.all_gather(values) if self.split is None else values

    def total(self, value: Any) -> Any:
        """Sums a value over all replicas among which the classes are split."""
        return value if self.split is None else collectives.all_sum(value)

    def own(self, value: Any) -> Any:
        """Returns the slice of a gathered `[batch, ...]` for the replica's examples."""
        return value if self.split is None else collectives.own_slice(value)

    def own_total(
        self, gradients: tf.Tensor, above: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Sums over the replicas and returns the slices for the replica's examples.

        Args:
            gradients: `[batch, emb]`.
            above: int64 `[batch]`, or None; sent as an extra column of the gradients.
        """
        if self.split is None:
            return gradients, above
        if above is None:
            return collectives.reduce_scatter(gradients), None
        column = tf.cast(above, gradients.dtype)[:, None]
        own = collectives.reduce_scatter(tf.concat([gradients, column], axis=1))
        return own[:, :-1], tf.cast(own[:, -1], above.dtype)
