"""The head that is whole on every replica."""

import keras
import tensorflow as tf

from plsc_tf.heads import distributed_softmax as softmax
from plsc_tf.heads.base import Head, HeadStep
from plsc_tf.parallel.rows import ReplicatedRows


class DenseHead(Head):
    """Every replica holds all classes (PLSC: loss types arcface and softmax).

    For few classes, or to compare with. Its gradients are summed over the replicas
    like the backbone's.

    Args and Raises: see `plsc_tf.heads.base.Head`.
    """

    sharded = False

    def build(self, embedding_size, strategy):
        """Makes the weights, mirrored on every replica of the strategy."""
        self.embedding_size = embedding_size
        with strategy.scope():
            self.weight = keras.Variable(
                self._initial_weight(0, self.num_classes), name="head_weight"
            )
            self.bias = None
            if not self.margins.normalized:
                self.bias = keras.Variable(
                    self._initial_bias(0, self.num_classes), name="head_bias"
                )

    @property
    def variables_replicated(self):
        """The mirrored weights, which train like those of the backbone."""
        self._check_built()
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def arrays(self):
        """`{"weight": ReplicatedRows, "bias": ReplicatedRows}`."""
        names = ("weight", "bias")
        return {
            name: ReplicatedRows(variable)
            for name, variable in zip(names, self.variables_replicated, strict=False)
        }

    def loss_and_gradients(self, embeddings, labels, upstream, with_ranks=False):
        """See `Head.loss_and_gradients`; needs nothing from other replicas."""
        self._check_built()
        entered, leave = self._enter(embeddings)
        weight = tf.convert_to_tensor(self.weight)
        bias = None if self.bias is None else tf.convert_to_tensor(self.bias)
        local = softmax.local_logits(
            weight, bias, entered, labels, self.margins, self.scale
        )
        log_total, target, plain_target = softmax.combine(
            softmax.local_statistics(local)[None]
        )
        gradients, *weight_gradients = softmax.local_gradients(
            weight, entered, local, log_total, upstream, self.scale
        )
        ranks = None
        if with_ranks:
            ranks = softmax.count_above(local, plain_target, self.scale)
        return HeadStep(
            losses=log_total - target,
            embedding_gradients=leave(gradients),
            weight_gradients=[g for g in weight_gradients if g is not None],
            ranks=ranks,
        )
