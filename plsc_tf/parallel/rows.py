"""Arrays `[num_rows, ...]` whose rows are sharded over the replicas, or replicated."""

import concurrent.futures
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.parallel import collectives, packing
from plsc_tf.parallel.strategy import gather, local_devices, local_replicas
from plsc_tf.requirements import require

# If several threads assign to slices at the same time on a device other than the first,
# TensorFlow 2.17 confuses the positions and writes rows to the wrong place, mostly
# without an error. Also, `ReplicatedRows.write` reads and writes the whole value, so
# concurrent writes would undo each other.
OVERWRITING = threading.Lock()
# Approximate size of the arrays that `pieces` yields.
PIECE_BYTES = 16_000_000

# Number of rows that are created at once: a few blocks of random numbers.
FILLED_ROWS = 1 << 14


@dataclasses.dataclass(frozen=True)
class RowSplit:
    """Splits rows into shards: shard r of n gets `num_rows // n + (r < num_rows % n)`.

    The sizes of the shards differ by at most one row. PLSC gives each shard
    `ceil(num_rows / n)` rows, which leaves some replicas without rows if there are few.
    """

    num_rows: int
    num_shards: int

    def __post_init__(self):
        advice = "Use fewer replicas, or a replicated head (loss_type=softmax, arcface)"
        rule = "Every replica must hold at least one row"
        require(0 < self.num_shards <= self.num_rows, rule, advice, **vars(self))

    def size(self, shard: int) -> int:
        """Returns a shard's number of rows."""
        return self.first(shard + 1) - self.first(shard)

    def first(self, shard: int) -> int:
        """Returns the global number of a shard's first row."""
        base, extra = divmod(self.num_rows, self.num_shards)
        return shard * base + min(shard, extra)

    def ranges(self, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
        """Cuts the global rows `[low, high)` at shard boundaries.

        Yields:
            (shard, first row within the shard, last + 1, first global row).
        """
        for shard in range(self.num_shards):
            first = self.first(shard)
            start = max(low, first)
            if start < (stop := min(high, first + self.size(shard))):
                yield shard, start - first, stop - first, start


def outside_scope(function: Callable) -> Any:
    """Calls `function` outside any `strategy.scope()` and returns its result.

    A variable created inside a scope is mirrored on every device, even under
    `tf.device`. A scope applies only to its thread, so `function` runs in another one.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as outside:
        return outside.submit(function).result()


class TiledRows:
    """An array `[num_rows, ...]` in tiles: what saving and loading a checkpoint needs.

    It is the base class of `ShardedRows` and `ReplicatedRows`, and the class of their
    snapshots (`held`). Only `ShardedRows` can be sharded alike (`split`, `filled`).

    Attributes:
        shape: `(num_rows, ...)`, the shape of the whole array.
        dtype: name of the dtype of the arrays that `pieces` yields and `write` takes.
        stored_dtype: `tf.DType` of the tiles, see `plsc_tf.parallel.packing`.
        tiles: {replica number: list of `tf.Variable`s} for the replicas of this
            process, or of tensors and arrays in a snapshot; every tile but a replica's
            last has `tile_rows` rows. Rows that are not sharded are one tile of
            replica 0.
        tile_rows: number of rows in a tile.
        sparse: whether tiles are only gathered and scattered, rather than only read and
            assigned. The two cannot be mixed: after a variable's first gather or
            scatter, TensorFlow copies it at every plain read.
    """

    sparse = False

    def __init__(
        self,
        tiles: Mapping[int, list[Any]],
        split: RowSplit | None = None,
        tile_rows: int | None = None,
        *,
        packed: bool = False,
    ) -> None:
        first = next(iter(tiles.values()))[0]
        self._split = split or RowSplit(first.shape[0], 1)
        self.tiles, self.tile_rows = tiles, tile_rows or first.shape[0]
        self.stored_dtype, self._packed = tf.as_dtype(first.dtype), packed
        shape, dtype = first.shape[1:], self.stored_dtype
        if not packed:
            shape, dtype = packing.unpacked(shape, dtype)
        # numpy's file format does not support bfloat16.
        self.dtype = "float32" if dtype == tf.bfloat16 else dtype.name
        self.shape = (self._split.num_rows, *shape)

    def local_range(self) -> tuple[int, int]:
        """Returns this process's global rows, (first, last + 1)."""
        first, end = min(self.tiles), max(self.tiles) + 1
        return self._split.first(first), self._split.first(end)

    def read(self, low: int, high: int) -> np.ndarray:
        """Returns the global rows `[low, high)`."""
        return np.concatenate(list(self.pieces(low, high)))

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the global rows `[low, high)` in order, as arrays of bounded size.

        Skips the rows of other processes.
        """
        row_bytes = tf.as_dtype(self.dtype).size * math.prod(self.shape[1:])
        step = max(1, PIECE_BYTES // row_bytes)
        for tile, start, stop, _ in self._pieces(low, high):
            for first in range(start, stop, step):
                yield self._read(tile, first, min(first + step, stop))

    def stored(self) -> "TiledRows":
        """Returns the rows as a checkpoint stores them, without unpacking them."""
        stored = TiledRows(self.tiles, self._split, self.tile_rows, packed=True)
        stored.sparse = self.sparse
        return stored

    def held(self) -> "TiledRows":
        """Returns a snapshot of `stored` that later updates don't change.

        On CPUs, the snapshot holds references: while a variable's old value is
        referenced, TensorFlow writes updates to new memory. Values on other devices are
        copied to the host immediately.
        """

        stored = self.stored()

        def held(tile):
            value = tf.convert_to_tensor(tile)
            return value if "CPU" in value.device else stored._as_numpy(value)

        tiles = {shard: list(map(held, tiles)) for shard, tiles in self.tiles.items()}
        return TiledRows(tiles, self._split, self.tile_rows, packed=True)

    def spans(self, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
        """Cuts the global rows `[low, high)` into spans that `write` handles fastest.

        A span never crosses a tile boundary, because overwriting part of a tile takes
        ten times as long as overwriting all of it.

        Args:
            low: first row.
            high: last row + 1.
            most: maximum number of rows in a span.

        Yields:
            (first row, last + 1), in order.
        """
        for _, start, stop, first in self._pieces(low, high):
            end = first + stop - start
            for begin in range(first, end, most):
                yield begin, min(begin + most, end)

    def bytes_per_replica(self) -> list[int]:
        """Returns the size in bytes of the tiles on each of this process's replicas."""
        return [
            sum(tile.shape.num_elements() * tile.dtype.size for tile in tiles)
            for tiles in self.tiles.values()
        ]

    def _read(self, tile, start, stop):
        """Returns a tile's rows `[start, stop)` as a numpy array."""
        if self.sparse:
            piece = tile.sparse_read(tf.range(start, stop))
        elif (start, stop) == (0, tile.shape[0]) and isinstance(tile, tf.Variable):
            piece = tile.read_value()
        else:
            piece = tile[start:stop]
        return self._as_numpy(piece)

    def _as_numpy(self, value):
        """Converts a tensor to a numpy array, without a copy if possible."""
        if isinstance(value, np.ndarray):
            return value
        value = tf.cast(value if self._packed else packing.unpack(value), self.dtype)
        return np.asarray(memoryview(value)) if "CPU" in value.device else value.numpy()

    def _pieces(self, low, high):
        """Yields (tile, first row within the tile, last + 1, first global row).

        Skips the rows of other processes.
        """
        for shard, start, stop, first in self._split.ranges(low, high):
            tiles, size = self.tiles.get(shard, ()), self.tile_rows
            for i in range(start // size, -(-stop // size) if tiles else 0):
                begin, end = max(start, i * size), min(stop, (i + 1) * size)
                yield tiles[i], begin - i * size, end - i * size, first + begin - start


class ShardedRows(TiledRows):
    """An array `[num_rows, ...]` sharded over the replicas; each shard is cut in tiles.

    A tile is a plain `tf.Variable` on its replica's device. A strategy's variables
    cannot be used: they hold the same value everywhere, or save only one of the values
    (tensorflow/tensorflow#27726). Tiles of a few megabytes are read, differentiated and
    updated one after another, so no temporary tensor has the size of a whole shard.

    In a cluster, each worker holds the rows of its own replicas. All workers must call
    `read` together; all other methods handle only this process's rows.

    Attributes:
        strategy: the `tf.distribute.Strategy` whose replicas hold the rows.
        split: the `RowSplit`.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        initial_rows: Callable,
        num_rows: int,
        name: str,
        *,
        tile_rows: int | None = None,
        sparse: bool = False,
        dtype: tf.DType | None = None,
    ) -> None:
        """Creates the variables and fills them with initial rows.

        Args:
            strategy: the `tf.distribute.Strategy` whose replicas hold the rows.
            initial_rows: function of (first, last + 1) that returns these rows,
                `[last + 1 - first, ...]`; its result must not depend on the replica.
            num_rows: number of rows of the whole array.
            name: prefix of the variables' names, to which the numbers of the replica
                and the tile are appended.
            tile_rows: number of rows in a tile; None creates one tile per replica.
            sparse: whether tiles are gathered and scattered; if True, creates one tile
                per replica.
            dtype: the variables' dtype, see `plsc_tf.parallel.packing`; None for the
                dtype of the initial rows, which rows of one number always have.
        """
        split = RowSplit(num_rows, strategy.num_replicas_in_sync)
        if sparse or tile_rows is None:
            tile_rows = split.size(0)

        def stored_rows(low, high):
            return packing.stored(tf.convert_to_tensor(initial_rows(low, high)), dtype)

        def make(shard, first, end):
            return [
                tf.Variable(
                    tf.zeros([min(tile_rows, end - low), *row.shape[1:]], row.dtype),
                    name=f"{name}_{shard}_{i}",
                )
                for i, low in enumerate(range(first, end, tile_rows))
            ]

        def fill(_, first, end):
            for low in range(first, end, FILLED_ROWS):
                self.write(low, stored_rows(low, min(low + FILLED_ROWS, end)))

        row = stored_rows(0, 1)  # shows the shape and the dtype
        # First all variables, and then all temporary tensors: together, they would
        # fragment the memory.
        super().__init__(_on_devices(strategy, split, make), split, tile_rows)
        self.strategy, self.split, self.sparse = strategy, split, sparse
        _on_devices(strategy, split, fill)

    def filled(self, value: Any, name: str, dtype: Any = None) -> "ShardedRows":
        """Returns new rows with the same sharding and tiles, filled with one value.

        Args:
            value: a number, or one row `[...]`.
            name: prefix of the variables' names.
            dtype: the variables' dtype; None uses `dtype` of these rows.
        """
        row = tf.broadcast_to(tf.cast(value, self.dtype), [1, *self.shape[1:]])
        row = packing.stored(row, dtype)

        def rows(low, high):
            return tf.broadcast_to(row, [high - low, *row.shape[1:]])

        create = functools.partial(ShardedRows, self.strategy, rows, dtype=dtype)
        count, tile_rows = self.split.num_rows, self.tile_rows
        return create(count, name, tile_rows=tile_rows, sparse=self.sparse)

    def local(self) -> list[tf.Variable]:
        """Returns the calling replica's tiles."""
        return self.tiles[collectives.replica_id()]

    def read(self, low: int, high: int) -> np.ndarray:
        """Returns the global rows `[low, high)`; all workers must call it together."""
        if len(self.tiles) == self.split.num_shards:
            return super().read(low, high)
        # Each replica contributes its part of the rows, padded to the largest part.
        firsts = [self.split.first(shard) for shard in range(self.split.num_shards + 1)]
        borders = np.clip(firsts, low, high)
        counts = np.diff(borders)
        most = counts.max()

        def padded(shard):
            rest = np.zeros((most - counts[shard], *self.shape[1:]), self.dtype)
            return np.concatenate([*self.pieces(*borders[shard : shard + 2]), rest])

        gathered = gather(self.strategy, list(map(padded, self.tiles)))
        return gathered[np.ravel(np.arange(most) < counts[:, None])]

    def write(self, low: int, rows: np.ndarray) -> None:
        """Overwrites the global rows from `low`, with rows in `dtype` or as stored."""
        for tile, start, stop, first in self._pieces(low, low + len(rows)):
            piece = rows[first - low : first - low + stop - start]
            piece = packing.pack(tf.convert_to_tensor(piece), tile.dtype)
            if self.sparse:
                tile.scatter_update(tf.IndexedSlices(piece, tf.range(start, stop)))
            else:
                # A new buffer for each tile would fragment the memory.
                with OVERWRITING:
                    tile[start:stop].assign(piece)
                    # Otherwise, every later read of the variable would be a copy.
                    tf.raw_ops.DisableCopyOnRead(resource=tile.handle)


class ReplicatedRows(TiledRows):
    """An array `[num_rows, ...]` replicated on every replica.

    Args:
        variable: the mirrored variable, `[num_rows, ...]`.
    """

    def __init__(self, variable: keras.Variable) -> None:
        super().__init__({0: [variable.value]})
        self.variable = variable

    def local(self) -> list[tf.Tensor]:
        """Returns the calling replica's only tile."""
        return [tf.convert_to_tensor(self.variable)]

    def write(self, low: int, rows: np.ndarray) -> None:
        """Overwrites the rows from `low` with `rows`, `[n, ...]`."""
        value = self.variable.value
        with OVERWRITING:
            head, tail = value[:low], value[low + len(rows) :]
            value.assign(tf.concat([head, tf.cast(rows, value.dtype), tail], axis=0))


def _on_devices(strategy, split, function):
    """Calls function(shard, first row, last + 1) for each local replica, on its device.

    Returns:
        {shard: result}.
    """

    def call():
        results, devices = {}, local_devices(strategy)
        for shard, device in zip(local_replicas(strategy), devices, strict=True):
            with tf.device(device):
                first, end = split.first(shard), split.first(shard + 1)
                results[shard] = function(shard, first, end)
        return results

    return outside_scope(call)
