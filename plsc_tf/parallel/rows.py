"""Arrays `[num_rows, ...]` whose rows are split over the replicas."""

import threading

import numpy as np
import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.held_rows import HeldRows, as_numpy, piece_rows
from plsc_tf.parallel.row_split import RowSplit
from plsc_tf.parallel.strategy import gather, local_replicas

# A tile of more rows is filled in parts, to need no second one while it is made.
LARGE_TILE = 1 << 16

# TensorFlow 2.17 mixes up the places of parts that threads overwrite at the same time
# on a device that is not the first: rows would land elsewhere, mostly silently. And a
# part of a replicated value is overwritten by reading and writing the whole.
OVERWRITING = threading.Lock()


def outside_scope(function):
    """Calls `function` where no `strategy.scope()` is active, and returns its value.

    A variable made inside a scope is mirrored on every device, even under a
    `tf.device`. A scope belongs to its thread, so another thread is outside it.
    """
    outcome = []

    def call():
        try:
            outcome.append((function(), None))
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            outcome.append((None, error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


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

    def __init__(self, strategy, tiles, split, tile_rows, sparse=False):
        self.strategy = strategy
        self.tiles = tiles
        self.split = split
        self.tile_rows = tile_rows
        self.sparse = sparse
        first = next(iter(tiles.values()))[0]
        self.shape = (split.num_rows, *first.shape[1:])
        # numpy's files do not know bfloat16.
        self.dtype = "float32" if first.dtype == tf.bfloat16 else first.dtype.name

    @classmethod
    def create(
        cls, strategy, initial_rows, num_rows, name, *, tile_rows=None, sparse=False
    ):
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
                lows = range(0, size, tile_rows)
                with tf.device(device):
                    tiles[shard] = [
                        _make_tile(
                            initial_rows,
                            first + low,
                            first + min(low + tile_rows, size),
                            f"{name}_{shard}_{low // tile_rows}",
                        )
                        for low in lows
                    ]
            return tiles

        return cls(strategy, outside_scope(make), split, tile_rows, sparse)

    def filled(self, value, name, dtype=None):
        """Rows of one number, split and tiled like these.

        Args:
            value: the number, or one row `[...]`.
            name: name of the variables.
            dtype: their type, when it is another one.
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

    def local(self):
        """The tiles of the calling replica."""
        return self.tiles[collectives.replica_id()]

    def here(self):
        """The global rows of this process: (first, last + 1)."""
        shards = sorted(self.tiles)
        last = shards[-1]
        return self.split.first(shards[0]), self.split.first(last) + self.split.size(
            last
        )

    def read(self, low, high):
        """The global rows `[low, high)` as numpy; all workers must ask for them."""
        if len(self.tiles) == self.split.num_shards:
            return np.concatenate(list(self._read_pieces(low, high)))
        # Each replica brings its rows of them, filled up to as many as the largest.
        cut = {
            shard: (start, stop)
            for shard, start, stop, _ in self.split.ranges(low, high)
        }
        most = max(stop - start for start, stop in cut.values())
        own = [self._padded(shard, low, high, most) for shard in self.tiles]
        gathered = gather(self.strategy, own)
        return np.concatenate(
            [
                gathered[shard * most : shard * most + stop - start]
                for shard, (start, stop) in cut.items()
            ]
        )

    def pieces(self, low, high):
        """The global rows `[low, high)` as numpy arrays of bounded size, in order."""
        for tile, start, stop, _ in self._pieces(low, high):
            step = piece_rows(tile.shape, tile.dtype)
            for first in range(start, stop, step):
                yield self._read(tile, first, min(first + step, stop))

    def release(self, low, high):
        """Nothing is held; see `HeldRows`."""

    def held(self):
        """These rows as they are now, whatever happens to the variables."""
        values = {
            shard: [tile.read_value() for tile in tiles]
            for shard, tiles in self.tiles.items()
        }
        return HeldRows(self.shape, self.dtype, values, self._places, self.here())

    def write(self, low, rows):
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

    def spans(self, low, high, most):
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

    def bytes_per_replica(self):
        """Bytes that each replica of this process holds."""
        return [
            sum(tile.shape.num_elements() * tile.dtype.size for tile in tiles)
            for tiles in self.tiles.values()
        ]

    def _read_pieces(self, low, high):
        """Those of the global rows `[low, high)` that are here, tile by tile."""
        for tile, start, stop, _ in self._pieces(low, high):
            yield self._read(tile, start, stop)

    def _padded(self, shard, low, high, size):
        """A shard's rows of `[low, high)`, and zeros behind them: `[size, ...]`."""
        first = self.split.first(shard)
        low, high = max(low, first), min(high, first + self.split.size(shard))
        found = [np.zeros((0, *self.shape[1:]), self.dtype)]
        if low < high:
            found += self._read_pieces(low, high)
        rest = size - sum(len(rows) for rows in found)
        return np.concatenate([*found, np.zeros((rest, *self.shape[1:]), self.dtype)])

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
