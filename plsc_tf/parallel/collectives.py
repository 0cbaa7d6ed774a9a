"""What replicas tell each other, called inside a replica function."""

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
    return context.all_gather(tf.identity(value), axis=0)


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
