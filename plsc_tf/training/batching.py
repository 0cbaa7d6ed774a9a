"""From global batches to what each replica gets."""

import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import local_replicas


def check_batch(images, labels, weights, num_classes):
    """Raises ValueError when a batch of arrays does not fit together.

    Args:
        images: `[batch, h, w, 3]`.
        labels: integers `[batch]` in [0, num_classes).
        weights: `[batch]`.
        num_classes: number of classes.
    """
    check_label_shape(np.shape(labels))
    lengths = {len(images), len(labels), len(weights)}
    if len(lengths) > 1:
        raise ValueError(
            f"images, labels and weights must be equally many. Received: {len(images)} "
            f"images, {len(labels)} labels, {len(weights)} weights."
        )
    if not len(labels):
        raise ValueError("A batch must hold at least one example. Received: 0 images.")
    negative = np.flatnonzero(np.asarray(weights) < 0)
    if negative.size:
        raise ValueError(
            "Weights must not be negative. Received: a weight of "
            f"{weights[negative[0]]} at example {negative[0]} of the batch."
        )
    labels = np.reshape(labels, -1)
    bad = [i for i, label in enumerate(labels) if not 0 <= label < num_classes]
    if bad:
        raise ValueError(
            f"Label {labels[bad[0]]} at example {bad[0]} of the batch is outside "
            f"[0, num_classes). Received: num_classes={num_classes}."
        )


def check_size(dataset, image_size):
    """Raises ValueError where a dataset's pictures have another size than a network's.

    Args:
        dataset: `tf.data.Dataset` of (images, ...), whose sizes may be unknown.
        image_size: (height, width), of which either may be None.
    """
    spec = dataset.element_spec
    shape = getattr(spec[0] if isinstance(spec, tuple) else spec, "shape", None)
    if shape is None or shape.rank != 4:
        return
    found = tuple(shape[1:3])
    if any(a != b for a, b in zip(found, image_size, strict=False) if a and b):
        raise ValueError(
            f"The network takes pictures of {_by(image_size)} pixels (height x width). "
            f"Received: {_by(found)}. tf.image.resize makes them fit."
        )


def _by(size):
    return " x ".join(str(number or "?") for number in size)


def check_label_shape(shape):
    """Raises ValueError where labels are not `[batch]` or `[batch, 1]`."""
    if len(shape) > 1 and tuple(shape[1:]) != (1,):
        raise ValueError(
            "Labels must be integers [batch]; of one-hot labels take argmax(axis=1). "
            f"Received: labels of shape {tuple(shape)}"
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
    too_many = (
        f"A batch is larger than the first one of {batch_size}; batch after shuffling:"
    )

    check_labels = _label_check(num_classes, batch_size)

    def complete(images, labels, weights=None):
        if labels.shape.rank is not None:
            check_label_shape(labels.shape.as_list())
        count = tf.shape(labels)[0]
        tf.debugging.Assert(count <= size, [too_many, count])
        tf.debugging.Assert(
            count == tf.shape(images)[0],
            ["Images and labels must be equally many:", tf.shape(images)[0], count],
        )
        labels = tf.cast(tf.reshape(labels, [-1]), tf.int64)
        check_labels(labels)
        if weights is None:
            weights = tf.ones_like(labels, tf.float32)
        return pad(images, labels, tf.cast(weights, tf.float32), size)

    complete = tf.autograph.experimental.do_not_convert(complete)
    return dataset.map(complete).with_options(_options())


def checked(dataset, num_classes):
    """A dataset of padded batches whose labels are checked.

    Args:
        dataset: `tf.data.Dataset` of (images, labels, weights).
        num_classes: labels outside [0, num_classes) are an error.
    """
    size = dataset.element_spec[1].shape[0]
    check_labels = _label_check(num_classes, size)

    def check(images, labels, weights):
        check_labels(labels)
        return images, labels, weights

    check = tf.autograph.experimental.do_not_convert(check)
    return dataset.map(check).with_options(_options())


def _label_check(num_classes, most):
    """A function that fails on labels out of range, of which it shows so many."""
    complaint = f"A label is outside [0, num_classes={num_classes}); labels:"

    def check(labels):
        fits = tf.reduce_all((labels >= 0) & (labels < num_classes))
        tf.debugging.Assert(fits, [complaint, labels], summarize=most)

    return check


def _options():
    options = tf.data.Options()
    # As in `data.pipeline`, for a user's own data set: with autotuning, the end of
    # every epoch waits for a planning thread, up to two minutes on two cores.
    options.autotune.enabled = False
    return options


def own_range(strategy, size):
    """The examples of a padded global batch that this process's replicas get.

    Returns:
        (first, last + 1).
    """
    share = size // strategy.num_replicas_in_sync
    here = local_replicas(strategy)
    return here.start * share, here.stop * share


def split(strategy, tensors):
    """Cuts padded global tensors `[n · b, ...]` into each replica's `[b, ...]`."""
    low, high = own_range(strategy, tensors[0].shape[0])
    return split_own(strategy, [tensor[low:high] for tensor in tensors])


def split_own(strategy, tensors):
    """Cuts this process's part of a padded global batch, as of `own_range`."""
    here = local_replicas(strategy)
    share = tensors[0].shape[0] // len(here)

    def own(context):
        replica = int(tf.get_static_value(context.replica_id_in_sync_group))
        start = (replica - here.start) * share
        return tuple(t[start : start + share] for t in tensors)

    return strategy.experimental_distribute_values_from_function(own)
