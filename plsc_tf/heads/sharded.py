"""The head whose class weights are split over the replicas."""

import tensorflow as tf

from plsc_tf.heads import distributed_softmax as softmax
from plsc_tf.heads.base import Head, HeadStep
from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import ShardedRows


class ShardedHead(Head):
    """Every replica holds `num_classes / n` classes (PLSC: dist_arcface, dist_softmax).

    The replicas gather each other's embeddings, compute the logits of their own
    classes, and exchange a few numbers per example; neither logits nor weights nor
    their gradients travel. With one replica the one shard is the whole head.

    Example:
        head = plsc_tf.ShardedHead(num_classes=85_742, margins=plsc_tf.ARCFACE)

    Args:
        num_classes: as for `plsc_tf.heads.base.Head`, and so are margins, scale, seed.
        sample_rate: share of the other classes that take part in a step (Partial
            FC); only 1.0, all of them, is supported so far.
        **options: margins, scale and seed.

    Raises:
        ValueError: a number is out of range.
    """

    sharded = True

    def __init__(self, num_classes, *, sample_rate=1.0, **options):
        super().__init__(num_classes, **options)
        if sample_rate != 1.0:
            raise ValueError(
                "Partial FC is not supported yet: leave sample_rate at 1.0. "
                f"Received: sample_rate={sample_rate}"
            )

    def build(self, embedding_size, strategy):
        """Makes this head's shards, one per replica of the strategy.

        Args:
            embedding_size: length of the embeddings.
            strategy: the `tf.distribute.Strategy` that will run the steps.

        Raises:
            ValueError: there are more replicas than classes.
        """
        self.embedding_size = embedding_size
        self.weight = ShardedRows.create(
            strategy, self._initial_weight, self.num_classes, "head_weight"
        )
        self.bias = None
        if not self.margins.normalized:
            self.bias = ShardedRows.create(
                strategy, self._initial_bias, self.num_classes, "head_bias"
            )

    def arrays(self):
        """`{"weight": ShardedRows, "bias": ShardedRows}`."""
        self._check_built()
        arrays = {"weight": self.weight}
        if self.bias is not None:
            arrays["bias"] = self.bias
        return arrays

    def loss_and_gradients(self, embeddings, labels, upstream, with_ranks=False):
        """See `Head.loss_and_gradients`; every replica must bring the same batch."""
        self._check_built()
        entered, leave = self._enter(embeddings)
        gathered = collectives.all_gather(entered)
        everyones_labels = collectives.all_gather(labels)
        everyones_upstream = collectives.all_gather(upstream)
        first = self.weight.split.first(collectives.replica_id())
        weight = tf.convert_to_tensor(self.weight.local())
        bias = None
        if self.bias is not None:
            bias = tf.convert_to_tensor(self.bias.local())
        local = softmax.local_logits(
            weight, bias, gathered, everyones_labels - first, self.margins, self.scale
        )
        statistics = collectives.all_gather(softmax.local_statistics(local)[None])
        log_total, target, plain_target = softmax.combine(statistics)
        share, *weight_gradients = softmax.local_gradients(
            weight, gathered, local, log_total, everyones_upstream, self.scale
        )
        ranks = None
        if with_ranks:
            above = softmax.count_above(local, plain_target, self.scale)
            ranks = collectives.own_slice(collectives.all_sum(above))
        return HeadStep(
            losses=collectives.own_slice(log_total - target),
            embedding_gradients=leave(
                collectives.own_slice(collectives.all_sum(share))
            ),
            weight_gradients=[g for g in weight_gradients if g is not None],
            ranks=ranks,
        )
