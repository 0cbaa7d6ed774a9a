"""Arrays `[num_rows, ...]` whose rows are split over the replicas."""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.held_rows import OVERWRITING, HeldRows, as_numpy, piece_rows
from plsc_tf.parallel.strategy import gather, local_replicas

# A tile of more rows is filled in parts, to need no second one while it is made.
LARGE_TILE = 1 << 16


@dataclasses.dataclass(frozen=True)
class RowSplit:
    """The rows of each replica: `num_rows // n + (r < num_rows % n)` of them.

    PLSC cuts at `ceil(num_rows / n)`, which leaves replicas without rows when
    there are few of them; this split differs by at most one row.
    """

    num_rows: int
    num_shards: int

    def __post_init__(self):
        if not 0 < self.num_shards <= self.num_rows:
            raise ValueError(
                "Every replica must hold at least one row. Received: "
                f"num_rows={self.num_rows}, num_shards={self.num_shards}. Use fewer "
                "replicas, or a replicated head (loss_type=softmax or arcface)."
            )

    def size(self, shard: int) -> int:
        """Returns the number of rows of one shard."""
        return self.first(shard + 1) - self.first(shard)

    def first(self, shard: int) -> int:
        """Returns the global number of the first row of one shard."""
        base, extra = divmod(self.num_rows, self.num_shards)
        return shard * base + min(shard, extra)

    def ranges(self, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
        """Cuts the global rows `[low, high)` at the borders of the shards.

        Yields:
            (shard, first row within the shard, last + 1, first global row).
        """
        for shard in range(self.num_shards):
            first = self.first(shard)
            start = max(low, first)
            stop = min(high, first + self.size(shard))
            if start < stop:
                yield shard, start - first, stop - first, start


def outside_scope(function: Callable) -> Any:
    """Calls `function` outside of any `strategy.scope()`, and returns its value.

    A variable made inside a scope is mirrored on every device, even under a
    `tf.device`. A scope belongs to its thread, so another thread is outside it.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as outside:
        return outside.submit(function).result()


def _devices(strategy):
    """The devices of this process's replicas: `{number of the replica: device}`."""
    if tf.distribute.has_strategy() or strategy.num_replicas_in_sync > 1:
        devices = strategy.extended.worker_devices
        return dict(zip(local_replicas(strategy), devices, strict=True))
    gpus = tf.config.list_logical_devices("GPU")
    return {0: gpus[0].name if gpus else "/device:CPU:0"}


class ShardedRows:
    """`[num_rows, ...]`, split over the replicas, and on each of them into tiles.

    A tile is a plain variable of its replica. Strategy variables cannot do this: they
    hold one value, or save one of several (tensorflow/tensorflow#27726). Tiles of a
    few megabytes are read, differentiated and updated one after the other, so that
    nothing else of the size of the whole has to exist.

    A worker of a cluster holds the rows of its own replicas. `read` is for all workers
    together; everything else is about the rows that are here.

    Attributes:
        split: the `RowSplit`.
        shape: `(num_rows, ...)`, the shape of the whole.
        dtype: name of the type that `read` returns.
        tiles: for every replica of this process, by its number, the list of its
            `tf.Variable`s, each of `tile_rows` rows but for the last.
        tile_rows: rows of a tile.
        sparse: whether rows are gathered and scattered. Once that has happened,
            TensorFlow copies a variable at every plain read; so plain tiles are only
            read and assigned, and sparse ones only gathered and scattered.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        tiles: dict[int, list[tf.Variable]],
        split: RowSplit,
        tile_rows: int,
        sparse: bool = False,
    ) -> None:
        self.strategy, self.tiles, self.split = strategy, tiles, split
        self.tile_rows, self.sparse = tile_rows, sparse
        first = next(iter(tiles.values()))[0]
        self.shape = (split.num_rows, *first.shape[1:])
        # numpy's files do not know bfloat16.
        self.dtype = "float32" if first.dtype == tf.bfloat16 else first.dtype.name

    @classmethod
    def create(
        cls,
        strategy: tf.distribute.Strategy,
        initial_rows: Callable,
        num_rows: int,
        name: str,
        *,
        tile_rows: int | None = None,
        sparse: bool = False,
    ) -> "ShardedRows":
        """Makes the variables.

        Args:
            strategy: the `tf.distribute.Strategy` whose replicas hold the rows.
            initial_rows: function of (first, last + 1) that returns these rows,
                `[last + 1 - first, ...]`, the same whichever replica asks.
            num_rows: rows of the whole.
            name: name of the variables; numbers of replica and tile are added.
            tile_rows: rows of a tile; one tile per replica unless given.
            sparse: the rows will be gathered and scattered; makes one tile.
        """
        split = RowSplit(num_rows, strategy.num_replicas_in_sync)
        if sparse or tile_rows is None:
            tile_rows = split.size(0)

        def make():
            tiles = {}
            for shard, device in _devices(strategy).items():
                size, first = split.size(shard), split.first(shard)
                with tf.device(device):
                    tiles[shard] = [
                        _make_tile(
                            initial_rows,
                            first + low,
                            first + min(low + tile_rows, size),
                            f"{name}_{shard}_{low // tile_rows}",
                        )
                        for low in range(0, size, tile_rows)
                    ]
            return tiles

        return cls(strategy, outside_scope(make), split, tile_rows, sparse)

    def filled(self, value: Any, name: str, dtype: Any = None) -> "ShardedRows":
        """Rows of one number, split and tiled like these.

        Args:
            value: the number, or one row `[...]`.
            name: name of the variables.
            dtype: their type, if it differs.
        """
        dtype = dtype or next(iter(self.tiles.values()))[0].dtype

        def like(tile, shard, i):
            with tf.device(tile.device):
                rows = tf.broadcast_to(tf.cast(value, dtype), tile.shape)
                return tf.Variable(rows, name=f"{name}_{shard}_{i}", trainable=False)

        def make():
            return {
                shard: [like(tile, shard, i) for i, tile in enumerate(tiles)]
                for shard, tiles in self.tiles.items()
            }

        return ShardedRows(
            self.strategy, outside_scope(make), self.split, self.tile_rows, self.sparse
        )

    def local(self) -> list[tf.Variable]:
        """Returns the tiles of the calling replica."""
        return self.tiles[collectives.replica_id()]

    def here(self) -> tuple[int, int]:
        """Returns the global rows of this process, (first, last + 1)."""
        first, end = min(self.tiles), max(self.tiles) + 1
        return self.split.first(first), self.split.first(end)

    def read(self, low: int, high: int) -> np.ndarray:
        """Returns the global rows `[low, high)`; all workers must ask for them."""
        if len(self.tiles) == self.split.num_shards:
            return np.concatenate(list(self._read_pieces(low, high)))
        # Each replica brings its rows of them, filled up to as many as the largest.
        cut = {
            shard: (start, stop)
            for shard, start, stop, _ in self.split.ranges(low, high)
        }
        most = max(stop - start for start, stop in cut.values())
        own = [
            self._padded(*cut.get(shard, (0, 0)), shard, most) for shard in self.tiles
        ]
        gathered = gather(self.strategy, own)
        return np.concatenate(
            [
                gathered[shard * most : shard * most + stop - start]
                for shard, (start, stop) in cut.items()
            ]
        )

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the global rows `[low, high)` in order, as arrays of bounded size."""
        for tile, start, stop, _ in self._pieces(low, high):
            step = piece_rows(tile.shape, tile.dtype)
            for first in range(start, stop, step):
                yield self._read(tile, first, min(first + step, stop))

    def release(self, low: int, high: int) -> None:
        """Does nothing; see `HeldRows`."""

    def held(self) -> HeldRows:
        """Returns these rows as they are now, whatever happens to the variables."""
        values = {
            shard: [tile.read_value() for tile in tiles]
            for shard, tiles in self.tiles.items()
        }
        return HeldRows(self.shape, self.dtype, values, self._places, self.here())

    def write(self, low: int, rows: np.ndarray) -> None:
        """Overwrites the global rows that start at `low`, `[n, ...]`."""
        for tile, start, stop, first in self._pieces(low, low + len(rows)):
            piece = tf.cast(rows[first - low : first - low + stop - start], tile.dtype)
            if self.sparse:
                tile.scatter_update(tf.IndexedSlices(piece, tf.range(start, stop)))
            elif (start, stop) == (0, tile.shape[0]):
                tile.assign(piece)
            else:
                with OVERWRITING:
                    tile[start:stop].assign(piece)

    def spans(self, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
        """Cuts the global rows `[low, high)` as `write` takes them fastest.

        Overwriting a part of a tile takes ten times as long as the whole of it.

        Args:
            low: first row.
            high: last row + 1.
            most: rows of a span at most.

        Yields:
            (first row, last + 1), in order.
        """
        for _, start, stop, first in self._pieces(low, high):
            end = first + stop - start
            for begin in range(first, end, most):
                yield begin, min(begin + most, end)

    def bytes_per_replica(self) -> list[int]:
        """Returns the bytes that each replica of this process holds."""
        return [
            sum(tile.shape.num_elements() * tile.dtype.size for tile in tiles)
            for tiles in self.tiles.values()
        ]

    def _read_pieces(self, low, high):
        """Those of the global rows `[low, high)` that are here, tile by tile."""
        for tile, start, stop, _ in self._pieces(low, high):
            yield self._read(tile, start, stop)

    def _padded(self, start, stop, shard, size):
        """A shard's rows `[start, stop)`, and zeros behind them: `[size, ...]`."""
        first = self.split.first(shard)
        rows = np.zeros((size, *self.shape[1:]), self.dtype)
        if start < stop:
            pieces = self._read_pieces(first + start, first + stop)
            rows[: stop - start] = np.concatenate(list(pieces))
        return rows

    def _read(self, tile, start, stop):
        """Rows `[start, stop)` of a tile as numpy."""
        if self.sparse:
            piece = tile.sparse_read(tf.range(start, stop))
        elif (start, stop) == (0, tile.shape[0]):
            piece = tile.read_value()
        else:
            piece = tile[start:stop]
        return as_numpy(piece)

    def _pieces(self, low, high):
        """Yields (tile, first row within it, last + 1, first global row)."""
        for shard, i, begin, end, place in self._places(low, high):
            yield self.tiles[shard][i], begin, end, place

    def _places(self, low, high):
        """Yields (shard, number of its tile, first row within it, last + 1, place).

        Rows of shards that are not here are left out.
        """
        for shard, start, stop, first in self.split.ranges(low, high):
            if shard not in self.tiles:
                continue
            for i in range(start // self.tile_rows, -(-stop // self.tile_rows)):
                offset = i * self.tile_rows
                begin = max(start, offset)
                end = min(stop, offset + self.tile_rows)
                yield shard, i, begin - offset, end - offset, first + begin - start


def _make_tile(initial_rows, low, high, name):
    """A variable of the global rows `[low, high)`."""
    if high - low <= LARGE_TILE:
        return tf.Variable(initial_rows(low, high), name=name)
    rows = initial_rows(low, low + LARGE_TILE)
    tile = tf.Variable(tf.zeros([high - low, *rows.shape[1:]], rows.dtype), name=name)
    tile[: len(rows)].assign(rows)
    for start in range(low + LARGE_TILE, high, LARGE_TILE):
        stop = min(start + LARGE_TILE, high)
        tile[start - low : stop - low].assign(initial_rows(start, stop))
    return tile
