"""Maintains exponential moving averages of the backbone's and the head's weights."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from plsc_tf.parallel.rows import ShardedRows
from plsc_tf.requirements import require

# Name of the slot that holds the average of the class rows.
SLOT = "average"


@dataclasses.dataclass(frozen=True)
class Averaging:
    """Settings of the averages: average ← d · average + (1 − d) · weight per update.

    After t updates, d is at most (1 + t) / (10 + t), so that the initial weights lose
    their influence quickly (tf.train.ExponentialMovingAverage's num_updates).

    Optimizer slots are not averaged. Neither are batch-norm statistics, which are
    already moving averages. In a step with Partial FC, rows that are not sampled are
    neither updated nor averaged.

    Attributes:
        decay: d.
        in_use: whether verification, export and the best checkpoint use the averages
            instead of the weights.
    """

    decay: float
    in_use: bool = True

    def __post_init__(self):
        require(0 < self.decay < 1, "decay must be between 0 and 1", decay=self.decay)

    def decay_at(self, step: tf.Tensor) -> tf.Tensor:
        """Returns d for an update, a float32 scalar.

        Args:
            step: int64 scalar, number of previous updates.
        """
        done = tf.cast(step, tf.float32)
        return tf.minimum(self.decay, (1.0 + done) / (10.0 + done))


def mixed(average: tf.Tensor, weight: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """Computes the new average of a weight, in the average's dtype."""
    decay = tf.cast(decay, weight.dtype)
    new = decay * tf.cast(average, weight.dtype) + (1 - decay) * weight
    return tf.cast(new, average.dtype)


@dataclasses.dataclass
class Averages:
    """The averages of a model's weights.

    Args:
        averaging: the `Averaging`.
        strategy: the `tf.distribute.Strategy`.
        replicated: list of mirrored `keras.Variable`s.
        rows: [(`ShardedRows`, their averages)], the weights of a sharded head.

    Attributes:
        exchanging: True while some weights are exchanged with their averages and others
            are not. Then, signals must wait.
    """

    averaging: Averaging
    strategy: tf.distribute.Strategy
    replicated: list[keras.Variable]
    rows: Sequence[tuple[ShardedRows, ShardedRows]]

    def __post_init__(self) -> None:
        self.started = self.exchanged = self.exchanging = False
        with self.strategy.scope():
            zeros = (tf.zeros(one.shape, one.dtype) for one in self.replicated)
            self.variables = [
                keras.Variable(zero, trainable=False, name=f"average_{i:04d}")
                for i, zero in enumerate(zeros)
            ]

    def start(self, step: int) -> None:
        """Sets the averages to the current weights unless the run was resumed.

        Args:
            step: number of updates so far; if it isn't 0, the averages are kept.
        """
        if step == 0:
            for weight, average in self._pairs():
                average.assign(tf.cast(weight.read_value(), average.dtype))
        self.started = True

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Context manager in which the model uses the averages instead of its weights.

        Weights and averages are exchanged one variable at a time, so the exchange needs
        no memory for a third copy of all weights, and it is exact.
        """
        if self.exchanged or not self.averaging.in_use:
            yield
            return
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def exchange(self) -> None:
        """Exchanges the weights and the averages."""
        self.exchanging = True
        for weight, average in self._pairs():
            value = tf.identity(weight.read_value())
            weight.assign(tf.identity(average.read_value()))
            average.assign(value)
        self.exchanged, self.exchanging = not self.exchanged, False

    def _pairs(self):
        """Yields each weight and its average as `tf.Variable`s."""
        for weight, average in zip(self.replicated, self.variables, strict=True):
            yield weight.value, average.value
        for rows, averages in self.rows:
            for shard, tiles in rows.tiles.items():
                yield from zip(tiles, averages.tiles[shard], strict=True)
