"""The head whose class weights are split over the replicas."""

from plsc_tf.heads import partial_fc
from plsc_tf.heads.base import Head
from plsc_tf.heads.layout import HeadLayout
from plsc_tf.heads.margins import require
from plsc_tf.heads.tiles import LocalTiles, SampledTiles, locate
from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import ShardedRows


class ShardedHead(Head):
    """Every replica holds `num_classes / n` classes (PLSC: dist_arcface, dist_softmax).

    The replicas gather each other's embeddings, compute the logits of their own
    classes, and exchange a few numbers per example; neither logits nor weights nor
    their gradients travel. With one replica the one shard is the whole head. The
    classes are worked on in tiles (see `plsc_tf.heads.tiled_softmax`), each of which
    is updated as soon as its gradient is there.

    Example:
        head = plsc_tf.ShardedHead(num_classes=85_742, margins=plsc_tf.ARCFACE)

    Args:
        num_classes: as for `plsc_tf.heads.base.Head`, and so are the options.
        sample_rate: share of a replica's classes that take part in a step: all true
            classes of the global batch, filled up with a random choice of the others
            (Partial FC, arXiv:2010.05222; arcface_torch: sample_rate), in (0, 1].
        tile_rows: classes of a tile; chosen by itself unless given.
        **options: see `plsc_tf.heads.base.Head`.

    Raises:
        ValueError: a number is out of range.
    """

    sharded = True

    def __init__(self, num_classes, *, sample_rate=1.0, tile_rows=None, **options):
        super().__init__(num_classes, **options)
        require(
            0 < sample_rate <= 1,
            "sample_rate must be in (0, 1], 1 for all classes",
            sample_rate=sample_rate,
        )
        require(
            tile_rows is None or tile_rows >= 1,
            "tile_rows must be positive, or None to have it chosen",
            tile_rows=tile_rows,
        )
        if sample_rate < 1 and self.label_smoothing:
            raise ValueError(
                "Label smoothing spreads the target over all classes, of which "
                "Partial FC sees a sample only: leave label_smoothing at 0, or "
                f"sample_rate at 1. Received: sample_rate={sample_rate}, "
                f"label_smoothing={self.label_smoothing}"
            )
        self.sample_rate = sample_rate
        self.tile_rows = tile_rows

    def build(self, embedding_size, strategy):
        """Makes this head's shards, one per replica of the strategy.

        Args:
            embedding_size: length of the embeddings.
            strategy: the `tf.distribute.Strategy` that will run the steps.

        Raises:
            ValueError: there are more replicas than classes, or fewer classes on a
                replica than to a tile.
        """
        self.layout = HeadLayout(
            num_classes=self.num_classes,
            embedding_size=embedding_size,
            replicas=strategy.num_replicas_in_sync,
            sample_rate=self.sample_rate,
            tile_rows=self.tile_rows,
            sub_centers=self.sub_centers,
        )
        self.layout.check()
        tile_rows = self.layout.rows_per_tile
        self.rows_per_tile = tile_rows
        self._prepare(embedding_size, strategy, tile_rows)
        layout = {"tile_rows": tile_rows, "sparse": self.sample_rate < 1}
        self.weight = ShardedRows.create(
            strategy, self._initial_weight, self.num_classes, "head_weight", **layout
        )
        self.bias = None
        if not self.margins.normalized:
            self.bias = ShardedRows.create(
                strategy, self._initial_bias, self.num_classes, "head_bias", **layout
            )

    def arrays(self):
        """`{"weight": ShardedRows, "bias": ShardedRows}`."""
        self._check_built()
        arrays = {"weight": self.weight}
        if self.bias is not None:
            arrays["bias"] = self.bias
        return arrays

    def sample(self, labels, step, gathered=False):
        """See `Head.sample`: int64 `[sample]`, ascending."""
        if self.sample_rate == 1:
            return None
        replica = collectives.replica_id()
        if not gathered:
            labels = collectives.all_gather(labels)
        return partial_fc.sample(
            labels - self.weight.split.first(replica),
            self.weight.split.size(replica),
            self.sample_rate,
            (self.seed, replica, step),
        )

    def tiles(self, chosen=None):
        """The replica's classes, or the chosen ones of them, in tiles."""
        if chosen is None:
            return LocalTiles(self.arrays())
        return SampledTiles(self.arrays(), chosen, self.rows_per_tile)

    def _gather(self, value):
        return collectives.all_gather(value)

    def _total(self, value):
        return collectives.all_sum(value)

    def _reduce_scatter(self, value):
        return collectives.reduce_scatter(value)

    def _own(self, value):
        return collectives.own_slice(value)

    def _rows(self, labels, chosen):
        split, replica = self.weight.split, collectives.replica_id()
        return locate(labels, split.first(replica), split.size(replica), chosen)
