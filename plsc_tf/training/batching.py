"""From global batches to what each replica gets."""

import tensorflow as tf


def check_labels(labels, num_classes):
    """Raises ValueError for the first label of a numpy array outside the classes."""
    bad = [i for i, label in enumerate(labels) if not 0 <= label < num_classes]
    if bad:
        raise ValueError(
            f"Label {labels[bad[0]]} at example {bad[0]} of the batch is outside "
            f"[0, num_classes). Received: num_classes={num_classes}."
        )


def pad(images, labels, weights, size):
    """Fills a global batch up to `size` examples that weigh nothing.

    The added examples repeat real ones, so that per-batch statistics of a network
    see pictures and not black squares.

    Args:
        images: `[n, ...]` with n ≤ size.
        labels: int64 `[n]`.
        weights: float32 `[n]`.
        size: examples wanted.
    """
    count = tf.shape(labels)[0]
    index = tf.range(size) % tf.maximum(count, 1)
    real = tf.cast(tf.range(size) < count, weights.dtype)
    return (
        tf.ensure_shape(tf.gather(images, index), [size, *images.shape[1:]]),
        tf.gather(labels, index),
        tf.gather(weights, index) * real,
    )


def padded_size(batch_size, num_replicas):
    """The smallest multiple of the replica count that holds the batch."""
    return -(-batch_size // num_replicas) * num_replicas


def prepare(dataset, batch_size, num_replicas, num_classes):
    """Pads every batch of a dataset, checks its labels, gives its examples weights.

    Args:
        dataset: `tf.data.Dataset` of (images, labels) or (images, labels, weights),
            global batches of at most `batch_size`.
        batch_size: examples of a full global batch.
        num_replicas: what the padded size must be divisible by.
        num_classes: labels outside [0, num_classes) are an error.
    """
    size = padded_size(batch_size, num_replicas)
    complaint = f"A label is outside [0, num_classes={num_classes}); labels:"

    def complete(images, labels, weights=None):
        labels = tf.cast(tf.reshape(labels, [-1]), tf.int64)
        fits = tf.reduce_all((labels >= 0) & (labels < num_classes))
        tf.debugging.Assert(fits, [complaint, labels], summarize=batch_size)
        if weights is None:
            weights = tf.ones_like(labels, tf.float32)
        return pad(images, labels, tf.cast(weights, tf.float32), size)

    return dataset.map(complete).with_options(_options())


def _options():
    options = tf.data.Options()
    # As in `data.pipeline`, for a user's own data set: with autotuning, the end of
    # every epoch waits for a planning thread, up to two minutes on two cores.
    options.autotune.enabled = False
    return options


def split(strategy, tensors):
    """Cuts padded global tensors `[n · b, ...]` into each replica's `[b, ...]`."""
    count = strategy.num_replicas_in_sync
    share = tensors[0].shape[0] // count

    def own(context):
        start = int(tf.get_static_value(context.replica_id_in_sync_group)) * share
        return tuple(t[start : start + share] for t in tensors)

    return strategy.experimental_distribute_values_from_function(own)
