"""The head that is whole on every replica."""

import keras
import tensorflow as tf

from plsc_tf.heads.base import Head
from plsc_tf.heads.tiles import WholeTile, locate
from plsc_tf.parallel import collectives
from plsc_tf.parallel.replicated_rows import ReplicatedRows


class DenseHead(Head):
    """Every replica holds all classes (PLSC: loss types arcface and softmax).

    For few classes, or to compare with. Its gradients are summed over the replicas
    like the backbone's.

    Args and Raises: see `plsc_tf.heads.base.Head`.
    """

    sharded = False

    def build(self, embedding_size, strategy):
        """Makes the weights, mirrored on every replica of the strategy."""
        self._prepare(embedding_size, strategy, self.num_classes)
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

    def tiles(self, chosen=None):
        """All classes in one tile."""
        names = ("weight", "bias")
        return WholeTile(
            {
                name: tf.convert_to_tensor(variable)
                for name, variable in zip(
                    names, self.variables_replicated, strict=False
                )
            }
        )

    def _gather(self, value):
        return value

    def _total(self, value):
        return value

    def _reduce_scatter(self, value):
        return value

    def _own(self, value):
        return value

    def _rows(self, labels, chosen):
        return locate(labels, 0, self.num_classes)

    def _next_state(self, state, score, norms, weights):
        if not self.state_variables:
            return {}
        gathered = collectives.all_gather([score, norms, weights])
        return super()._next_state(state, *gathered)
