"""Exponential moving averages of the weights, of backbone and class rows alike."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

from plsc_tf.heads.margins import require

if TYPE_CHECKING:
    from plsc_tf.parallel.rows import ShardedRows

# The slot of the class rows that holds their average.
SLOT = "average"


@dataclasses.dataclass(frozen=True)
class Averaging:
    """How weights are averaged: average ← d · average + (1 − d) · weight per update.

    The slots of an optimizer are not averaged, nor are batch-norm statistics, which
    follow the weights by themselves. Rows that Partial FC does not sample in a step
    neither move nor are averaged then.

    Attributes:
        decay: d.
        warm_up: whether d is at most (1 + t) / (10 + t) after t updates, so that the
            first weights are soon forgotten (tf.train.ExponentialMovingAverage's
            num_updates).
        in_use: whether to verify, export and keep as the best the averages.
    """

    decay: float
    warm_up: bool = True
    in_use: bool = True

    def __post_init__(self):
        rule = "decay must be between 0 and 1"
        require(0 < self.decay < 1, rule, decay=self.decay)

    def decay_at(self, step: tf.Tensor) -> tf.Tensor:
        """d of an update, float32 scalar.

        Args:
            step: updates before it, int64 scalar.
        """
        decay = tf.constant(self.decay, tf.float32)
        if not self.warm_up:
            return decay
        done = tf.cast(step, tf.float32)
        return tf.minimum(decay, (1.0 + done) / (10.0 + done))


def mixed(average: tf.Tensor, weight: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """The new average of a weight, in the average's type."""
    decay = tf.cast(decay, weight.dtype)
    new = decay * tf.cast(average, weight.dtype) + (1 - decay) * weight
    return tf.cast(new, average.dtype)


class Averages:
    """The averages of a model's weights.

    Args:
        averaging: the `Averaging`.
        strategy: the `tf.distribute.Strategy`.
        replicated: list of mirrored `keras.Variable`s.
        rows: `{name: ShardedRows}` of a sharded head.
        row_averages: `{name: ShardedRows}` of their averages.
    """

    def __init__(
        self,
        averaging: Averaging,
        strategy: tf.distribute.Strategy,
        replicated: list[keras.Variable],
        rows: Mapping[str, ShardedRows],
        row_averages: Mapping[str, ShardedRows],
    ) -> None:
        self.averaging = averaging
        self.strategy = strategy
        self.replicated = replicated
        self.rows = rows
        self.row_averages = row_averages
        self.started = self.exchanged = False
        with strategy.scope():
            self.variables = [
                keras.Variable(
                    tf.zeros(weight.shape, weight.dtype),
                    trainable=False,
                    name=f"average_{i:04d}",
                )
                for i, weight in enumerate(replicated)
            ]

    def start(self, step: int) -> None:
        """Starts at the weights as they are, unless a training is resumed.

        Args:
            step: updates so far.
        """
        if step == 0:
            for weight, average in zip(self.replicated, self.variables, strict=True):
                average.assign(self._value(weight))
            for name, rows in self.rows.items():
                for weight, average in self._tiles(rows, self.row_averages[name]):
                    average.assign(tf.cast(weight.read_value(), average.dtype))
        self.started = True

    def update(self, step: tf.Tensor) -> None:
        """Moves the averages of the mirrored weights; cross-replica, after an update.

        Args:
            step: updates before it.
        """
        decay = self.averaging.decay_at(step)
        for weight, average in zip(self.replicated, self.variables, strict=True):
            self.strategy.extended.update(
                average.value,
                lambda mean, value, decay: mean.assign(mixed(mean, value, decay)),
                args=(weight.value, decay),
                group=False,
            )

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it the model has the averages, and the averages are the weights.

        They change places, bit for bit and without memory for a third copy of all.
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
        """Lets weights and averages change places."""
        for weight, average in zip(self.replicated, self.variables, strict=True):
            value = tf.identity(self._value(weight))
            weight.assign(self._value(average))
            average.assign(value)
        for name, rows in self.rows.items():
            for weight, average in self._tiles(rows, self.row_averages[name]):
                value = tf.identity(weight.read_value())
                weight.assign(tf.identity(average.read_value()))
                average.assign(value)
        self.exchanged = not self.exchanged

    def _value(self, variable):
        """The first replica's value of a mirrored variable."""
        return self.strategy.experimental_local_results(variable.value)[0]

    @staticmethod
    def _tiles(rows, averages):
        for shard, tiles in rows.tiles.items():
            yield from zip(tiles, averages.tiles[shard], strict=True)
