"""What replicas tell each other, called inside a replica function."""

import dataclasses

import tensorflow as tf


def replica_id():
    """Number of the calling replica, as a Python int even while tracing."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def num_replicas():
    """How many replicas run the calling function."""
    return tf.distribute.get_replica_context().num_replicas_in_sync


def all_gather(value):
    """Concatenates `[b, ...]` of every replica to `[num_replicas * b, ...]`.

    Every replica must bring the same shape.
    """
    context = tf.distribute.get_replica_context()
    # With one replica per worker TensorFlow cannot tell the device of a raw
    # function argument; an identity gives it one.
    gathered = context.all_gather(tf.identity(value), axis=0)
    # Among workers TensorFlow forgets how many rows that makes.
    return tf.ensure_shape(
        gathered, [num_replicas() * value.shape[0], *value.shape[1:]]
    )


def all_sum(value):
    """Adds a tensor, or each tensor of a list, over all replicas."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(
        tf.distribute.ReduceOp.SUM, tf.nest.map_structure(tf.identity, value)
    )


def own_slice(value):
    """The `[b, ...]` of the calling replica out of `[num_replicas * b, ...]`."""
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

    def all_sum(self, values):
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
