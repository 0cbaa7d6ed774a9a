"""Arrays `[num_rows, ...]` whose rows are split over the replicas."""

import dataclasses
import threading

import numpy as np
import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.held_rows import HeldRows, as_numpy, piece_rows

# A tile of more rows is filled in parts, to need no second one while it is made.
LARGE_TILE = 1 << 16

# TensorFlow 2.17 mixes up the places of parts that threads overwrite at the same time
# on a device that is not the first: rows would land elsewhere, mostly silently. And a
# part of a replicated value is overwritten by reading and writing the whole.
_OVERWRITING = threading.Lock()


@dataclasses.dataclass(frozen=True)
class RowSplit:
    """Which replica holds which rows: `num_rows // n + (r < num_rows % n)` each.

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

    def size(self, shard):
        """Number of rows of one shard."""
        return self.num_rows // self.num_shards + (
            shard < self.num_rows % self.num_shards
        )

    def first(self, shard):
        """Global number of the first row of one shard."""
        base, extra = divmod(self.num_rows, self.num_shards)
        return shard * base + min(shard, extra)

    def ranges(self, low, high):
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
    """The devices of a strategy's replicas on this worker."""
    if tf.distribute.has_strategy() or strategy.num_replicas_in_sync > 1:
        return strategy.extended.worker_devices
    gpus = tf.config.list_logical_devices("GPU")
    return [gpus[0].name if gpus else "/device:CPU:0"]


class ShardedRows:
    """`[num_rows, ...]`, split over the replicas, and on each of them into tiles.

    A tile is a plain variable of its replica. Strategy variables cannot do this: they
    hold one value, or save one of several (tensorflow/tensorflow#27726). Tiles of a
    few megabytes are read, differentiated and updated one after the other, so that
    nothing else of the size of the whole has to exist.

    Attributes:
        split: the `RowSplit`.
        shape: `(num_rows, ...)`, the shape of the whole.
        dtype: name of the type that `read` returns.
        tiles: for every replica the list of its `tf.Variable`s, each of `tile_rows`
            rows but for the last.
        tile_rows: rows of a tile.
        sparse: whether rows are gathered and scattered. Once that has happened,
            TensorFlow copies a variable at every plain read; so plain tiles are only
            read and assigned, and sparse ones only gathered and scattered.
    """

    def __init__(self, tiles, split, tile_rows, sparse=False):
        self.tiles = tiles
        self.split = split
        self.tile_rows = tile_rows
        self.sparse = sparse
        first = tiles[0][0]
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
        devices = _devices(strategy)
        if len(devices) != strategy.num_replicas_in_sync:
            raise ValueError(
                "Rows can be split over the devices of one machine only, so far. "
                f"Received: a strategy of {strategy.num_replicas_in_sync} replicas, "
                f"{len(devices)} of them here."
            )
        split = RowSplit(num_rows, len(devices))
        if sparse or tile_rows is None:
            tile_rows = split.size(0)

        def make():
            tiles = []
            for shard, device in enumerate(devices):
                size, first = split.size(shard), split.first(shard)
                lows = range(0, size, tile_rows)
                with tf.device(device):
                    tiles.append(
                        [
                            _make_tile(
                                initial_rows,
                                first + low,
                                first + min(low + tile_rows, size),
                                f"{name}_{shard}_{low // tile_rows}",
                            )
                            for low in lows
                        ]
                    )
            return tiles

        return cls(outside_scope(make), split, tile_rows, sparse)

    def filled(self, value, name, dtype=None):
        """Rows of one number, split and tiled like these.

        Args:
            value: the number, or one row `[...]`.
            name: name of the variables.
            dtype: their type, when it is another one.
        """
        dtype = dtype or self.tiles[0][0].dtype

        def like(tile, shard, i):
            with tf.device(tile.device):
                rows = tf.broadcast_to(tf.cast(value, dtype), tile.shape)
                return tf.Variable(rows, name=f"{name}_{shard}_{i}", trainable=False)

        def make():
            return [
                [like(tile, shard, i) for i, tile in enumerate(tiles)]
                for shard, tiles in enumerate(self.tiles)
            ]

        return ShardedRows(outside_scope(make), self.split, self.tile_rows, self.sparse)

    def local(self):
        """The tiles of the calling replica."""
        return self.tiles[collectives.replica_id()]

    def read(self, low, high):
        """The global rows `[low, high)` as numpy."""
        return np.concatenate(
            [
                self._read(t, start, stop)
                for t, start, stop, _ in self._pieces(low, high)
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
        values = [[tile.read_value() for tile in tiles] for tiles in self.tiles]
        return HeldRows(self.shape, self.dtype, values, self._places)

    def write(self, low, rows):
        """Overwrites the global rows that start at `low`, `[n, ...]`."""
        for tile, start, stop, first in self._pieces(low, low + len(rows)):
            piece = tf.cast(rows[first - low : first - low + stop - start], tile.dtype)
            if self.sparse:
                tile.scatter_update(tf.IndexedSlices(piece, tf.range(start, stop)))
            elif (start, stop) == (0, tile.shape[0]):
                tile.assign(piece)
            else:
                with _OVERWRITING:
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
        """Bytes that each replica holds."""
        return [
            sum(tile.shape.num_elements() * tile.dtype.size for tile in tiles)
            for tiles in self.tiles
        ]

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
        """Yields (shard, number of its tile, first row within it, last + 1, place)."""
        for shard, start, stop, first in self.split.ranges(low, high):
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


class ReplicatedRows:
    """`[num_rows, ...]`, whole on every replica, with the face of `ShardedRows`."""

    def __init__(self, variable):
        self.variable = variable
        self.shape = tuple(variable.shape)
        self.dtype = variable.dtype

    def read(self, low, high):
        """The rows `[low, high)` as numpy."""
        return self.variable.value[low:high].numpy()

    def pieces(self, low, high):
        """The rows `[low, high)` as numpy arrays of bounded size, in order."""
        return self.held().pieces(low, high)

    def release(self, low, high):
        """Nothing is held; see `HeldRows`."""

    def held(self):
        """These rows as they are now, whatever happens to the variable."""
        value = tf.convert_to_tensor(self.variable.value)

        def places(low, high):
            yield 0, 0, low, high, low

        return HeldRows(self.shape, self.dtype, [[value]], places)

    def spans(self, low, high, most):
        """Cuts the rows `[low, high)` into spans of at most `most` rows."""
        for begin in range(low, high, most):
            yield begin, min(begin + most, high)

    def write(self, low, rows):
        """Overwrites the rows that start at `low`, `[n, ...]`."""
        value = self.variable.value
        with _OVERWRITING:
            head, tail = value[:low], value[low + len(rows) :]
            value.assign(tf.concat([head, tf.cast(rows, value.dtype), tail], axis=0))
