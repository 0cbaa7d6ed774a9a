"""Checks and pads global batches and splits them over the replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import local_replicas


def whole_labels(labels: Any) -> np.ndarray:
    """Converts labels of shape `[N]` or `[N, 1]` to int64 `[N]`.

    Raises:
        ValueError: the array has another shape, or its values are not whole numbers.
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
    """Returns the indices of weights that are negative, NaN or infinite."""
    weights = np.asarray(weights)
    return np.flatnonzero(~((weights >= 0) & (weights < np.inf)))


def check_rank(shape: Sequence[int], name: str) -> None:
    """Raises ValueError unless an array is a batch of images `[N, h, w, channels]`.

    Args:
        shape: the array's shape.
        name: the array's name in the error message.
    """
    if len(shape) != 4:
        raise ValueError(
            f"{name} must be images [N, height, width, 3]. Received: shape "
            f"{tuple(shape)}. A single image is {name}[np.newaxis]; gray ones are "
            f"np.stack([{name}] * 3, axis=-1)."
        )


def check_channels(shape: Sequence[int], channels: int) -> None:
    """Raises ValueError if images do not have the network's number of channels.

    Args:
        shape: `[N, h, w, channels]`; the last number may be None.
        channels: the network's number of channels.
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
    """Raises ValueError if images do not have the network's input shape.

    Args:
        shape: `[N, h, w, channels]`; each number may be None.
        input_shape: the network's input shape, (None, height, width, channels).
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
    """Raises ValueError unless labels are `[batch]` or `[batch, 1]`."""
    if len(shape) > 1 and tuple(shape[1:]) != (1,):
        raise ValueError(
            "Labels must be integers [batch]; of one-hot labels take argmax(axis=1). "
            f"Received: labels of shape {tuple(shape)}"
        )


def pad(
    images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None, size: int
) -> tuple[tf.Tensor, ...]:
    """Pads a global batch to `size` examples; the added examples have weight 0.

    The added examples repeat real ones, because blank images would distort a network's
    batch statistics.

    Args:
        images: `[n, ...]` with n ≤ size.
        labels: int64 `[n]`.
        weights: float32 `[n]`, or None if all examples have the same weight.
        size: number of examples after padding.

    Returns:
        (images, labels, real), or (images, labels, weights, real) with weights. `real`
        is float32 `[size]`, 1 for the examples of the batch and 0 for the added ones.
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
    """Returns the smallest multiple of the replica count that fits the batch."""
    return -(-batch_size // num_replicas) * num_replicas


def prepare(
    dataset: tf.data.Dataset, batch_size: int, num_replicas: int, num_classes: int
) -> tf.data.Dataset:
    """Checks the labels of every batch of a dataset and pads the batch with `pad`.

    Args:
        dataset: `tf.data.Dataset` of (images, labels) or (images, labels, weights),
            global batches of at most `batch_size`.
        batch_size: number of examples in a full global batch.
        num_replicas: the padded size is a multiple of this number.
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
    """Converts labels to int64; labels that are not whole numbers are an error."""
    if labels.dtype == tf.string:
        raise ValueError("Labels must be whole numbers from 0 on. Received: strings.")
    if labels.dtype.is_floating:
        whole = tf.reduce_all(labels == tf.floor(labels))
        tf.debugging.Assert(whole, ["Labels must be whole numbers:", labels])
    return tf.cast(labels, tf.int64)


def _checked_weights(weights, count):
    """Converts weights to float32 `[count]`; negative or infinite ones are errors."""
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
    """Adds a check of the labels to a dataset of padded batches.

    Args:
        dataset: `tf.data.Dataset` of batches padded as by `pad`.
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
    """Returns a function that fails on labels out of range, and shows up to `most`."""
    complaint = f"A label is outside [0, num_classes={num_classes}); labels:"

    def check(labels):
        fits = tf.reduce_all((labels >= 0) & (labels < num_classes))
        tf.debugging.Assert(fits, [complaint, labels], summarize=most)

    return check


def _options():
    options = tf.data.Options()
    # With autotuning, the end of every epoch waits for a planning thread, up to two
    # minutes on two cores. `data.pipeline` disables it as well.
    options.autotune.enabled = False
    return options


def own_range(strategy: tf.distribute.Strategy, size: int) -> tuple[int, int]:
    """Returns which examples of a padded global batch this process's replicas get.

    Returns:
        (index of the first example, index of the last + 1).
    """
    share = size // strategy.num_replicas_in_sync
    here = local_replicas(strategy)
    return here.start * share, here.stop * share


def split(
    strategy: tf.distribute.Strategy, tensors: Sequence[tf.Tensor], local: bool = False
) -> Any:
    """Splits padded global tensors `[n · b, ...]` into each replica's `[b, ...]`.

    Args:
        strategy: the `tf.distribute.Strategy`.
        tensors: the global batch.
        local: whether `tensors` are only this process's part of it, see `own_range`.
    """
    here = local_replicas(strategy) if local else range(strategy.num_replicas_in_sync)
    share = tensors[0].shape[0] // len(here)

    def of_replica(context):
        replica = int(tf.get_static_value(context.replica_id_in_sync_group))
        start = (replica - here.start) * share
        return tuple(t[start : start + share] for t in tensors)

    return strategy.experimental_distribute_values_from_function(of_replica)
