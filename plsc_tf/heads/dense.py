"""The head that is whole on every replica."""

import keras

from plsc_tf.heads.base import Head
from plsc_tf.heads.exchange import NoExchange
from plsc_tf.parallel.held_rows import ReplicatedRows


class DenseHead(Head):
    """Every replica holds all classes (PLSC: loss types arcface and softmax).

    For few classes, or to compare with. Its gradients are summed over the replicas
    like the backbone's.

    Args and Raises: see `plsc_tf.heads.base.Head`.
    """

    @property
    def variables_replicated(self) -> list[keras.Variable]:
        """The mirrored weights, which train like those of the backbone."""
        return [rows.variable for rows in self.arrays().values()]

    def _make_rows(self, strategy, initial_rows, name):
        with strategy.scope():
            return ReplicatedRows(
                keras.Variable(initial_rows(0, self.num_classes), name=name)
            )

    def _make_exchange(self):
        return NoExchange(self.num_classes)
