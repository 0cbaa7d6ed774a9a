"""Collectives between replicas, called inside a replica function.

Every collective between workers has a fixed cost, however small it is, so tensors
travel together where they can.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from plsc_tf.private_apis import CollectiveLauncher


def replica_id() -> int:
    """Returns the number of the calling replica, as a Python int even while tracing."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def num_replicas() -> int:
    """Returns how many replicas run the calling function."""
    return tf.distribute.get_replica_context().num_replicas_in_sync


def all_gather(values: Any) -> Any:
    """Concatenates `[b, ...]` of every replica to `[num_replicas * b, ...]`.

    Every replica must bring the same shapes.

    Args:
        values: a tensor, or a list of tensors `[b, ...]` of 4 or 8 bytes per number,
            which travel in one collective.

    Returns:
        a tensor, or a list of them.
    """
    if num_replicas() == 1:
        return tf.nest.map_structure(tf.identity, values)
    if not isinstance(values, list):
        return _all_gather(values)
    columns = [_as_columns(value) for value in values]
    widths = [column.shape[1] for column in columns]
    gathered = tf.split(_all_gather(tf.concat(columns, axis=1)), widths, axis=1)
    pairs = zip(gathered, values, strict=True)
    return [_from_columns(column, value) for column, value in pairs]


def all_sum(value: Any) -> Any:
    """Adds a tensor, or each tensor of a list, over all replicas."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(
        tf.distribute.ReduceOp.SUM, tf.nest.map_structure(tf.identity, value)
    )


def reduce_scatter(value: tf.Tensor) -> tf.Tensor:
    """Adds `[num_replicas * b, ...]` over all replicas; each keeps its own `[b, ...]`.

    On CPUs every replica sends each of the others its part, which they add up: half the
    bytes of a sum for all, in one round, and the terms are always added in the same
    order. On GPUs it is a sum for all: the alternative has not been tried there.
    """
    count = num_replicas()
    launcher = _launcher() if count > 1 else None
    if launcher is None or not launcher.is_on_cpu():
        return own_slice(all_sum(value))
    parts = tf.reshape(value, [count, value.shape[0] // count, *value.shape[1:]])
    received = launcher.all_to_all(parts)
    return tf.add_n(tf.unstack(tf.ensure_shape(received, parts.shape)))


def own_slice(value: tf.Tensor) -> tf.Tensor:
    """Returns the calling replica's `[b, ...]` of `[num_replicas * b, ...]`."""
    size = value.shape[0] // num_replicas()
    start = replica_id() * size
    return value[start : start + size]


@dataclasses.dataclass(frozen=True)
class Transport:
    """How sums of many tensors, such as a network's gradients, travel.

    Attributes:
        bucket_bytes: tensors are sent together in buckets of about this size; 0 sends
            all in one.
        dtype: type they travel in, "float32", "float16" or "bfloat16"; the sum is
            formed in that type too.
    """

    bucket_bytes: int = 0
    dtype: str = "float32"

    def all_sum(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Adds each float tensor of a list over all replicas, in replica context."""
        if num_replicas() == 1:
            return [tf.identity(value) for value in values]
        short = self.dtype != "float32"
        sent = [tf.cast(v, self.dtype) if short else tf.identity(v) for v in values]
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=self.bucket_bytes
        )
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, sent, options)
        return [tf.cast(s, v.dtype) for s, v in zip(total, values, strict=True)]


def _launcher():
    """The `CollectiveLauncher` of this replica; None where copies do its work."""
    if tf.executing_eagerly():
        return None  # a process's replicas run one after the other and would not meet
    return CollectiveLauncher.of_this_replica()


def _all_gather(value):
    shape = [num_replicas() * value.shape[0], *value.shape[1:]]
    launcher = _launcher()
    if launcher is not None:
        gathered = launcher.all_gather(value)
    else:
        # With one replica per worker TensorFlow cannot tell the device of a raw
        # function argument; an identity gives it one.
        context = tf.distribute.get_replica_context()
        gathered = context.all_gather(tf.identity(value), axis=0)
    # Among workers TensorFlow forgets how many rows that makes.
    return tf.ensure_shape(gathered, shape)


def _as_columns(value):
    """The bits of `[b, ...]` as float32 `[b, k]`, which any collective can carry."""
    return tf.reshape(tf.bitcast(value, tf.float32), [value.shape[0], -1])


def _from_columns(columns, like):
    shape = [columns.shape[0], *like.shape[1:]]
    pairs = [2] if like.dtype.size == 8 else []
    return tf.bitcast(tf.reshape(columns, shape + pairs), like.dtype)
