"""Arrays `[num_rows, ...]` whose rows are split over the replicas."""

import dataclasses
import threading

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.parallel import collectives


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
    """`[num_rows, ...]`, one plain variable of its own rows on every replica.

    Strategy variables cannot do this: they hold one value, or save one of several
    (tensorflow/tensorflow#27726).

    Attributes:
        split: the `RowSplit`.
        shape: `(num_rows, ...)`, the shape of the whole.
        variables: one `keras.Variable` per replica.
    """

    def __init__(self, variables, split):
        self.variables = variables
        self.split = split
        self.shape = (split.num_rows, *variables[0].shape[1:])
        self.dtype = variables[0].dtype

    @classmethod
    def create(cls, strategy, initial_rows, num_rows, name):
        """Makes the variables.

        Args:
            strategy: the `tf.distribute.Strategy` whose replicas hold the rows.
            initial_rows: function of (first, last + 1) that returns these rows,
                `[last + 1 - first, ...]`, the same whichever replica asks.
            num_rows: rows of the whole.
            name: name of the variables; the replica's number is added.
        """
        devices = _devices(strategy)
        if len(devices) != strategy.num_replicas_in_sync:
            raise ValueError(
                "Rows can be split over the devices of one machine only, so far. "
                f"Received: a strategy of {strategy.num_replicas_in_sync} replicas, "
                f"{len(devices)} of them here."
            )
        split = RowSplit(num_rows, len(devices))

        def make():
            variables = []
            for shard, device in enumerate(devices):
                first = split.first(shard)
                with tf.device(device):
                    rows = initial_rows(first, first + split.size(shard))
                    variables.append(
                        keras.Variable(rows, dtype=rows.dtype, name=f"{name}_{shard}")
                    )
            return variables

        return cls(outside_scope(make), split)

    def local(self):
        """The variable of the calling replica."""
        return self.variables[collectives.replica_id()].value

    def read(self, low, high):
        """The global rows `[low, high)` as numpy."""
        parts = [
            self.variables[shard].value[start:stop].numpy()
            for shard, start, stop, _ in self.split.ranges(low, high)
        ]
        return np.concatenate(parts)

    def write(self, low, rows):
        """Overwrites the global rows that start at `low`, `[n, ...]`."""
        for shard, start, stop, first in self.split.ranges(low, low + len(rows)):
            part = rows[first - low : first - low + stop - start]
            self.variables[shard].value[start:stop].assign(part)

    def bytes_per_replica(self):
        """Bytes that each replica holds."""
        return [
            v.value.shape.num_elements() * v.value.dtype.size for v in self.variables
        ]


class ReplicatedRows:
    """`[num_rows, ...]`, whole on every replica, with the face of `ShardedRows`."""

    def __init__(self, variable):
        self.variable = variable
        self.shape = tuple(variable.shape)
        self.dtype = variable.dtype

    def read(self, low, high):
        """The rows `[low, high)` as numpy."""
        return self.variable.value[low:high].numpy()

    def write(self, low, rows):
        """Overwrites the rows that start at `low`, `[n, ...]`."""
        value = self.variable.value
        head, tail = value[:low], value[low + len(rows) :]
        value.assign(tf.concat([head, tf.cast(rows, value.dtype), tail], axis=0))
