"""Collectives between replicas; call them inside a replica function.

Every collective between workers has a fixed cost regardless of size, so several tensors
share one collective if possible.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.parallel.strategy import device_kind


def replica_id() -> int:
    """Returns the calling replica's number, as a Python int even while tracing."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def local_copy(variable: tf.Variable) -> tf.Variable:
    """Returns the calling replica's copy of a variable that a strategy has copied.

    Assigning to it changes this copy only. Outside replicas, returns the variable.
    """
    context = tf.distribute.get_replica_context()
    if context is None or not tf.distribute.has_strategy():
        return variable
    copies = context.strategy.experimental_local_results(variable)
    return copies[replica_id() % len(copies)]


def replicated_scalar(value: float, dtype: Any, name: str) -> tf.Variable:
    """Returns a variable of which every replica computes the same value.

    So the strategy can use the first replica's.
    """
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(tf.cast(value, dtype), False, name=name, aggregation=first)


def num_replicas() -> int:
    """Returns how many replicas run the calling function."""
    return tf.distribute.get_replica_context().num_replicas_in_sync


def all_gather(values: Any) -> Any:
    """Concatenates every replica's `[b, ...]` into `[num_replicas * b, ...]`.

    The shapes must be the same on every replica.

    Args:
        values: a tensor `[b, ...]`, or a list of such tensors, which share one
            collective and must have a dtype of 4 or 8 bytes.

    Returns:
        A tensor `[num_replicas * b, ...]`, or a list of such tensors.
    """
    if num_replicas() == 1:
        return tf.nest.map_structure(tf.identity, values)
    if not isinstance(values, list):
        return _all_gather(values)
    # Bits of `[b, ...]` become float32 `[b, k]`.
    columns = [tf.reshape(tf.bitcast(v, tf.float32), [v.shape[0], -1]) for v in values]
    widths = [column.shape[1] for column in columns]
    gathered = tf.split(_all_gather(tf.concat(columns, axis=1)), widths, axis=1)
    pairs = zip(gathered, values, strict=True)
    return [_from_columns(column, value) for column, value in pairs]


def all_sum(value: Any) -> Any:
    """Sums a tensor, or each tensor in a list, over all replicas."""
    context = tf.distribute.get_replica_context()
    value = tf.nest.map_structure(tf.identity, value)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def sum_scalars(values: Any) -> Any:
    """Sums all float scalars of a nested structure over the replicas at once.

    They travel in one collective, in the widest of their dtypes.
    """
    scalars = tf.nest.flatten(values)
    dtype = max((scalar.dtype for scalar in scalars), key=lambda one: one.size)
    total = all_sum(tf.stack([tf.cast(scalar, dtype) for scalar in scalars]))
    pairs = zip(tf.unstack(total), scalars, strict=True)
    sums = [tf.cast(value, scalar.dtype) for value, scalar in pairs]
    return tf.nest.pack_sequence_as(values, sums)


def reduce_scatter(value: tf.Tensor) -> tf.Tensor:
    """Sums `[num_replicas * b, ...]` over all replicas; each keeps its own `[b, ...]`.

    On CPUs, every replica sends each other replica its part, and each replica sums the
    parts that it receives. This takes one round and half the bytes of an all-reduce,
    and always adds the terms in the same order. On GPUs, this function uses an
    all-reduce: TensorFlow's NCCL all-to-all is wrong across machines, where it divides
    a tensor by the number of the machine's own GPUs.
    """
    if not value.shape.num_elements():
        return own_slice(value)  # an empty all-to-all crashes TensorFlow 2.21
    count = num_replicas()
    launcher = _launcher() if count > 1 else None
    if launcher is None or device_kind(tf.distribute.get_strategy()) != "CPU":
        return own_slice(all_sum(value))
    parts = tf.reshape(value, [count, value.shape[0] // count, *value.shape[1:]])
    received = private_apis.launch_all_to_all(launcher, parts)
    return tf.add_n(tf.unstack(tf.ensure_shape(received, parts.shape)))


def own_slice(value: tf.Tensor) -> tf.Tensor:
    """Returns the calling replica's `[b, ...]` from `[num_replicas * b, ...]`."""
    size = value.shape[0] // num_replicas()
    start = replica_id() * size
    return value[start : start + size]


@dataclasses.dataclass(frozen=True)
class Transport:
    """Configures how many tensors, such as a network's gradients, are summed.

    Attributes:
        bucket_bytes: approximate size of the buckets in which tensors are sent; 0 sends
            all tensors in one bucket.
        dtype: "float32", "float16" or "bfloat16", in which tensors are sent and summed.
    """

    bucket_bytes: int = 0
    dtype: str = "float32"

    def all_sum(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums each float tensor in a list over all replicas.

        The sums have the dtypes of `values`. Call it in replica context.
        """
        if num_replicas() == 1:
            return list(values)
        short = self.dtype != "float32"
        sent = [tf.cast(v, self.dtype) if short else tf.identity(v) for v in values]
        kind = tf.distribute.experimental.CommunicationOptions
        options = kind(bytes_per_pack=self.bucket_bytes)
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, sent, options)
        return [tf.cast(s, v.dtype) for s, v in zip(total, values, strict=True)]


def _launcher():
    """Returns this replica's launcher, or None to use the strategy."""
    if tf.executing_eagerly():
        return None  # eager replicas run one after another, so a launch would hang
    return private_apis.collective_launcher()


def _all_gather(value):
    shape = [num_replicas() * value.shape[0], *value.shape[1:]]
    if (launcher := _launcher()) is not None:
        gathered = private_apis.launch_all_gather(launcher, value)
    else:
        # With one replica per worker, TensorFlow cannot determine the device of a raw
        # function argument; `tf.identity` places the value on a device.
        context = tf.distribute.get_replica_context()
        gathered = context.all_gather(tf.identity(value), axis=0)
    # With several workers, TensorFlow loses the static number of rows.
    return tf.ensure_shape(gathered, shape)


def _from_columns(columns, like):
    shape = [columns.shape[0], *like.shape[1:]]
    pairs = [2] if like.dtype.size == 8 else []
    return tf.bitcast(tf.reshape(columns, shape + pairs), like.dtype)
