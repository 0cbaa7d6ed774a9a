"""From global batches to what each replica gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import local_replicas


def whole_labels(labels: Any) -> np.ndarray:
    """Labels int64 `[N]` of an array `[N]` or `[N, 1]`.

    Raises:
        ValueError: it has another shape, or holds something else than whole numbers.
    """
    labels = np.asarray(labels)
    check_label_shape(labels.shape)
    labels = labels.reshape(-1)
    is_number = labels.dtype.kind in "biuf"
    if not is_number or (labels.dtype.kind == "f" and (labels % 1 != 0).any()):
        raise ValueError(
            "Labels must be whole numbers from 0 on. Received: "
            f"{labels.dtype.name}, as in {labels[:3].tolist()}"
        )
    return labels.astype(np.int64)


def bad_weights(weights: Any) -> np.ndarray:
    """Which weights are no numbers from 0 on, or infinite: their places, in order."""
    weights = np.asarray(weights)
    return np.flatnonzero(~((weights >= 0) & (weights < np.inf)))


def check_rank(shape: Sequence[int], name: str) -> None:
    """Raises ValueError where an array is not a batch of images `[N, h, w, channels]`.

    Args:
        shape: of the array.
        name: what it is called.
    """
    if len(shape) != 4:
        raise ValueError(
            f"{name} must be images [N, height, width, 3]. Received: shape "
            f"{tuple(shape)}. A single image is {name}[np.newaxis]; gray ones are "
            f"np.stack([{name}] * 3, axis=-1)."
        )


def check_channels(shape: Sequence[int], channels: int) -> None:
    """Raises ValueError where images have other channels than a network takes.

    Args:
        shape: `[N, h, w, channels]`, the last of which may be None.
        channels: of the network.
    """
    if shape[3] in (None, channels):
        return
    hint = ""
    if shape[1] == channels:
        hint = " Channels come last: transpose(0, 2, 3, 1)."
    elif shape[3] == 1:
        hint = " Of gray images take np.repeat(x, 3, axis=-1)."
    raise ValueError(
        f"The network takes images of {channels} channels, [N, height, width, "
        f"{channels}]. Received: shape {tuple(shape)}.{hint}"
    )


def check_shape(shape: Sequence[int], input_shape: tuple) -> None:
    """Raises ValueError where images are not what a network takes.

    Args:
        shape: `[N, h, w, channels]`, of which any may be None.
        input_shape: of the network, (None, height, width, channels).
    """
    check_channels(shape, input_shape[3])
    size, wanted = tuple(shape[1:3]), input_shape[1:3]
    if any(a != b for a, b in zip(size, wanted, strict=True) if a and b):
        raise ValueError(
            f"The network takes images of {_by(wanted)} pixels (height x width). "
            f"Received: {_by(size)}. tf.image.resize makes them fit."
        )


def _by(size):
    return " x ".join(str(number or "?") for number in size)


def check_label_shape(shape: Sequence[int]) -> None:
    """Raises ValueError where labels are not `[batch]` or `[batch, 1]`."""
    if len(shape) > 1 and tuple(shape[1:]) != (1,):
        raise ValueError(
            "Labels must be integers [batch]; of one-hot labels take argmax(axis=1). "
            f"Received: labels of shape {tuple(shape)}"
        )


def pad(
    images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None, size: int
) -> tuple[tf.Tensor, ...]:
    """Fills a global batch up to `size` examples that do not count.

    The added examples repeat real ones, so that per-batch statistics of a network
    see images and not black squares.

    Args:
        images: `[n, ...]` with n ≤ size.
        labels: int64 `[n]`.
        weights: float32 `[n]`, or None where all examples weigh the same.
        size: examples wanted.

    Returns:
        (images, labels, real), or (images, labels, weights, real): `real` is float32
        `[size]`, 1 for the examples of the batch and 0 for the added ones.
    """
    count = tf.shape(labels)[0]
    index = tf.range(size) % tf.maximum(count, 1)
    real = tf.cast(tf.range(size) < count, tf.float32)
    padded = (
        tf.ensure_shape(tf.gather(images, index), [size, *images.shape[1:]]),
        tf.gather(labels, index),
    )
    if weights is None:
        return *padded, real
    return *padded, tf.gather(weights, index) * real, real


def padded_size(batch_size: int, num_replicas: int) -> int:
    """The smallest multiple of the replica count that holds the batch."""
    return -(-batch_size // num_replicas) * num_replicas


def prepare(
    dataset: tf.data.Dataset, batch_size: int, num_replicas: int, num_classes: int
) -> tf.data.Dataset:
    """Pads every batch of a dataset and checks its labels; batches are as of `pad`.

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
        labels = _whole(tf.reshape(labels, [-1]))
        check_labels(labels)
        if weights is not None:
            weights = _checked_weights(weights, count)
        return pad(images, labels, weights, size)

    complete = tf.autograph.experimental.do_not_convert(complete)
    return dataset.map(complete).with_options(_options())


def _whole(labels):
    """Labels as int64, of which those that are no whole numbers are an error."""
    if labels.dtype == tf.string:
        raise ValueError("Labels must be whole numbers from 0 on. Received: strings.")
    if labels.dtype.is_floating:
        whole = tf.reduce_all(labels == tf.floor(labels))
        tf.debugging.Assert(whole, ["Labels must be whole numbers:", labels])
    return tf.cast(labels, tf.int64)


def _checked_weights(weights, count):
    """Weights `[count]` or `[count, 1]` as float32 `[count]`, none negative."""
    weights = tf.reshape(tf.cast(weights, tf.float32), [-1])
    tf.debugging.Assert(
        count == tf.shape(weights)[0],
        ["Weights must be one for each image:", count, tf.shape(weights)[0]],
    )
    good = tf.reduce_all((weights >= 0) & (weights < np.inf))
    message = "Weights must be numbers, none negative:"
    tf.debugging.Assert(good, [message, weights], summarize=1000)
    return weights


def checked(dataset: tf.data.Dataset, num_classes: int) -> tf.data.Dataset:
    """A dataset of padded batches whose labels are checked.

    Args:
        dataset: `tf.data.Dataset` of what `pad` returns.
        num_classes: labels outside [0, num_classes) are an error.
    """
    size = dataset.element_spec[1].shape[0]
    check_labels = _label_check(num_classes, size)

    def check(images, labels, *weights):
        check_labels(labels)
        return images, labels, *weights

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
    # As in `data.pipeline`, for a user's data set: with autotuning, the end of
    # every epoch waits for a planning thread, up to two minutes on two cores.
    options.autotune.enabled = False
    return options


def own_range(strategy: tf.distribute.Strategy, size: int) -> tuple[int, int]:
    """The examples of a padded global batch that this process's replicas get.

    Returns:
        (first, last + 1).
    """
    share = size // strategy.num_replicas_in_sync
    here = local_replicas(strategy)
    return here.start * share, here.stop * share


def split(
    strategy: tf.distribute.Strategy, tensors: Sequence[tf.Tensor], local: bool = False
) -> Any:
    """Cuts padded global tensors `[n · b, ...]` into each replica's `[b, ...]`.

    Args:
        strategy: the `tf.distribute.Strategy`.
        tensors: the global batch.
        local: whether they are this process's part of it only, as of `own_range`.
    """
    here = local_replicas(strategy) if local else range(strategy.num_replicas_in_sync)
    share = tensors[0].shape[0] // len(here)

    def of_replica(context):
        replica = int(tf.get_static_value(context.replica_id_in_sync_group))
        start = (replica - here.start) * share
        return tuple(t[start : start + share] for t in tensors)

    return strategy.experimental_distribute_values_from_function(of_replica)
