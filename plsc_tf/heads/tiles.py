"""The classes that a replica works on in a step, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from plsc_tf.heads.layout import tile_sizes


class LocalTiles:
    """All classes that a replica holds.

    Args:
        arrays: `{"weight": rows}` of `Head.arrays`, with plain softmax also `"bias"`.
    """

    def __init__(self, arrays: dict) -> None:
        self._tiles = {name: rows.local() for name, rows in arrays.items()}
        weights = self._tiles["weight"]
        self.sizes = [tile.shape[0] for tile in weights]
        self.starts = [arrays["weight"].tile_rows * i for i in range(len(weights))]

    def handles(self, index: int) -> tuple[dict, tf.Tensor | None]:
        """(variables of a tile, None), see `read`."""
        return {name: tiles[index] for name, tiles in self._tiles.items()}, None

    def pick(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Rows of the arrays, `{"weight": [batch, emb], …}`; anything where −1."""
        picked: dict[str, tf.Tensor] = {}
        for index, (start, size) in enumerate(
            zip(self.starts, self.sizes, strict=True)
        ):
            here = tf.logical_and(rows >= start, rows < start + size)
            place = tf.where(here, rows - start, 0)
            # One tile after the other: all at once they would need as many copies
            # of `[batch, emb]` as there are tiles.
            with tf.control_dependencies(list(picked.values())):
                for name, array in read(*self.handles(index)).items():
                    found = tf.gather(array, place, axis=0)
                    fits = tf.reshape(here, [-1] + [1] * (found.shape.rank - 1))
                    picked[name] = tf.where(fits, found, picked.get(name, 0.0))
        return picked


class SampledTiles:
    """The sampled classes of a replica's shard (Partial FC).

    Args:
        arrays: `{"weight": ShardedRows}`, with plain softmax also `"bias"`; sparse.
        chosen: int64 `[sample]` rows of the shard that take part, ascending.
        tile_rows: rows of a tile.
    """

    def __init__(self, arrays: dict, chosen: tf.Tensor, tile_rows: int) -> None:
        self._variables = {name: rows.local()[0] for name, rows in arrays.items()}
        self._chosen = chosen
        count = chosen.shape[0]
        if count is None:
            self.starts: list[int] = [0]
            self.sizes: list = [None]
        else:
            self.starts = list(range(0, count, tile_rows))
            self.sizes = tile_sizes(count, tile_rows)

    def _rows(self, index):
        if self.sizes[index] is None:
            return self._chosen
        start = self.starts[index]
        return self._chosen[start : start + self.sizes[index]]

    def handles(self, index: int) -> tuple[dict, tf.Tensor | None]:
        """(variables of the shard, int64 rows of a tile), see `read`."""
        return self._variables, self._rows(index)

    def pick(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Rows of the arrays, `{"weight": [batch, emb], …}`; anything where −1."""
        chosen = tf.gather(self._chosen, tf.maximum(rows, 0))
        return {name: v.sparse_read(chosen) for name, v in self._variables.items()}


def read(handles: dict, chosen: tf.Tensor | None) -> dict[str, tf.Tensor]:
    """The arrays of a tile: `{"weight": [classes, emb], …}`.

    Args:
        handles: `{name: variable or tensor}`.
        chosen: int64 rows that take part, or None for all.
    """
    if chosen is None:
        return {name: tf.convert_to_tensor(v) for name, v in handles.items()}
    return {name: v.sparse_read(chosen) for name, v in handles.items()}


def apart(function: Callable) -> Callable:
    """A function that stays one node of the graph, however many tiles it is called for.

    Traced and optimised once for all tiles of a shape, instead of once for each.
    """
    return tf.function(
        function, autograph=False, experimental_attributes={"_noinline": True}
    )


def locate(
    labels: tf.Tensor, first: Any, count: Any, chosen: tf.Tensor | None = None
) -> tf.Tensor:
    """Where the true classes are among the classes that a replica works on.

    Args:
        labels: int64 `[batch]`.
        first: label of the shard's first class.
        count: classes of the shard.
        chosen: ascending int64 rows of the shard that take part, the true classes'
            among them; None for all.

    Returns:
        int32 `[batch]`: the row, −1 where the class is elsewhere.
    """
    rows = labels - first
    here = tf.logical_and(rows >= 0, rows < count)
    if chosen is not None:
        rows = tf.searchsorted(chosen, tf.where(here, rows, 0), out_type=tf.int64)
    return tf.cast(tf.where(here, rows, -1), tf.int32)
