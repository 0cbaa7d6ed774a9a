"""Splits the projection over the replicas, each with its own columns."""

import functools

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.boost.trajectory import Piece
from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import ShardedRows, TiledRows

# Number of weights whose columns share one variable.
TILE = 1 << 20


class HostRows(TiledRows):
    """A NumPy array, equal on all workers, that checkpoints store as rows.

    Args:
        owner: the object that has the array as an attribute.
        name: name of the attribute.
    """

    def __init__(self, owner, name):
        super().__init__({0: [tf.constant(getattr(owner, name))]})
        self._owner, self._name = owner, name

    def write(self, low, rows):
        """Overwrites the rows that start at `low`."""
        whole = np.array(getattr(self._owner, self._name))
        whole[low : low + len(rows)] = rows
        setattr(self._owner, self._name, whole)


class Space:
    """The projection P, split over the replicas, and the residual gradient.

    Each of W replicas holds the columns of P for its share of the replicated weights
    and for its own class rows: k · n / W numbers. A product with P needs only a sum of
    k numbers over all replicas. Each replica computes its own part of Pᵀd; for the
    replicated weights, the parts are gathered.

    Args:
        strategy: the `tf.distribute.Strategy`.
        projection: P, `[k, n]`.
        layout: the `Layout`.
        rows: `{name: ShardedRows}` of a sharded head if it is also reduced, or `{}`.
        with_residual: whether to keep a residual gradient.

    Attributes:
        dimensions: k, the number of components.
        size: number of replicated weights.
    """

    def __init__(self, strategy, projection, layout, rows, *, with_residual):
        self.dimensions, self._rows = projection.shape[0], rows
        self.size = [one for one in layout.pieces if one.rows not in rows][-1].stop
        dtype = keras.config.floatx()
        tile_rows = min(TILE, -(-self.size // strategy.num_replicas_in_sync))

        def columns(piece, low, high):
            width = piece.size // piece.shape[0]
            start, stop = (piece.start + row * width for row in (low, high))
            part = projection[:, start:stop].T
            shape = (high - low, *piece.shape[1:], self.dimensions)
            return np.ascontiguousarray(part, dtype).reshape(shape)

        def zeros(piece, low, high):
            return np.zeros((high - low, *piece.shape[1:]), dtype)

        def create(name, values, piece):
            like, values = rows.get(piece.rows), functools.partial(values, piece)
            size = like.tile_rows if like else tile_rows
            name = f"{name}_{piece.rows}"
            return ShardedRows(strategy, values, piece.shape[0], name, tile_rows=size)

        # The replicated weights are one piece.
        pieces = [Piece("replicated", (self.size,), 0)]
        pieces += [one for one in layout.pieces if one.rows in rows]
        self._basis = {one.rows: create("basis", columns, one) for one in pieces}
        kept = pieces if with_residual else ()
        self._residual = {one.rows: create("residual", zeros, one) for one in kept}

    def slots(self):
        """Returns the arrays to store in a checkpoint, `{name: ShardedRows}`."""
        kept, first = self._residual.items(), "dim_reduce/residual"
        return {f"{first}_{name}" if name else first: rows for name, rows in kept}

    def cut(self, flat, gradients):
        """Returns the calling replica's part of a gradient: a list, tile by tile.

        Args:
            flat: `[n]` gradient of the replicated weights, summed over the replicas.
            gradients: `{name: [own rows, …]}` gradients of the reduced class rows.
        """
        cuts, first = [], self._basis[""].split.first(collectives.replica_id())
        for name, values in {"": flat, **gradients}.items():
            low = 0 if name else first
            for tile in self._basis[name].local():
                cuts.append(tf.reshape(values[low : low + tile.shape[0]], [-1]))
                low += tile.shape[0]
        return cuts

    def project(self, own):
        """Computes the calling replica's contribution to P g, `[k]`.

        Args:
            own: the gradient's tiles, from `cut`.
        """
        pairs = zip(map(self._matrix, _local(self._basis)), own, strict=True)
        return tf.add_n([tf.linalg.matvec(p, v, transpose_a=True) for p, v in pairs])

    def lift(self, direction, projected, own, gamma):
        """Computes Pᵀd and the new residual r = γ r + g − Pᵀ(P g), tile by tile.

        Args:
            direction: d, `[k]`.
            projected: P g, `[k]`.
            own: the gradient's tiles, from `cut`.
            gamma: γ, momentum of the residual.

        Returns:
            (tiles of Pᵀd, tiles of the residual or an empty list).
        """
        both = tf.stack([direction, projected], axis=1)
        if not self._residual:
            both = direction[:, None]
        lifted = [tf.matmul(self._matrix(tile), both) for tile in _local(self._basis)]
        moves = [one[:, 0] for one in lifted]
        if not self._residual:
            return moves, []
        old = [gamma * tf.reshape(tile, [-1]) for tile in _local(self._residual)]
        tiles = zip(old, own, lifted, strict=True)
        return moves, [kept + (values - one[:, 1]) for kept, values, one in tiles]

    def gather(self, pieces):
        """Gathers all replicas' tiles into one `[n]` for the replicated weights.

        Args:
            pieces: the calling replica's tiles; those of the replicated weights are
                first.
        """
        basis = self._basis[""]
        whole = tf.concat(pieces[: len(basis.local())], axis=0)
        count = collectives.num_replicas()
        if count == 1:
            return whole
        longest = basis.split.size(0)
        padded = tf.pad(whole, [[0, longest - whole.shape[0]]])
        gathered = collectives.all_gather(padded)
        sizes = [(r * longest, basis.split.size(r)) for r in range(count)]
        return tf.concat([gathered[low : low + n] for low, n in sizes], axis=0)

    def class_rows(self, pieces):
        """Pairs the calling replica's head tiles with their parts of `pieces`."""
        class_pieces = pieces[len(self._basis[""].local()) :]
        pairs = zip(_local(self._rows), class_pieces, strict=True)
        return [(tile, tf.reshape(piece, tile.shape)) for tile, piece in pairs]

    def keep_residuals(self, residuals, finite):
        """Stores the new residuals if `finite` is true."""
        for tile, new in zip(_local(self._residual), residuals, strict=True):
            shaped = tf.reshape(new, tile.shape)
            tile.assign(tf.where(finite, shaped, tf.convert_to_tensor(tile)))

    def _matrix(self, tile):
        return tf.reshape(tf.convert_to_tensor(tile), [-1, self.dimensions])


def _local(arrays):
    """Returns the calling replica's tiles of `{name: ShardedRows}`."""
    return [tile for rows in arrays.values() for tile in rows.local()]
