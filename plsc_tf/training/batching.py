"""Checks and pads global batches and splits them over the replicas."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import local_devices, local_replicas
from plsc_tf.requirements import require


def whole_labels(labels: Any) -> np.ndarray:
    """Converts labels of shape `[N]` or `[N, 1]` to int64 `[N]`.

    Raises:
        ValueError: the array has another shape, or its values are not whole numbers.
    """
    labels = np.asarray(labels)
    rule, shape = "Labels must be integers of shape [batch]", labels.shape
    advice = "Convert one-hot labels with argmax(axis=1)"
    require(shape[1:] in ((), (1,)), rule, advice, shape=shape)
    labels = labels.reshape(-1)
    wrong = labels[labels % 1 != 0] if labels.dtype.kind in "biuf" else labels
    rule = "Labels must be whole numbers, starting at 0"
    require(not wrong.size, rule, dtype=labels.dtype, labels=wrong[:3])
    return labels.astype(np.int64)


def bad_weights(weights: Any) -> np.ndarray:
    """Returns the indices of weights that are negative, NaN or infinite."""
    weights = np.asarray(weights)
    return np.flatnonzero(~((weights >= 0) & (weights < np.inf)))


def check_images(shape: Sequence, input_shape: tuple, resize: bool = False) -> None:
    """Raises ValueError if images do not have the network's input shape.

    Args:
        shape: the images' shape; each number of `[N, h, w, channels]` may be None.
        input_shape: the network's input shape, (None, height, width, channels).
        resize: whether images of other sizes are resized.
    """
    channels, advice = input_shape[3], ""
    if len(shape) != 4:
        advice = "Pass a single image as images[np.newaxis] and gray images as "
        advice += "np.stack([images] * 3, axis=-1)"
    elif shape[1] == channels:
        advice = "Put the channels last: transpose(0, 2, 3, 1)"
    elif shape[3] == 1:
        advice = "Convert gray images with np.repeat(x, 3, axis=-1)"
    fits = len(shape) == 4 and shape[3] in (None, channels)
    rule = f"The network takes images of shape [N, height, width, {channels}]"
    require(fits, rule, advice, shape=tuple(shape))
    size, wanted = tuple(shape[1:3]), input_shape[1:3]
    fits = all(a == b for a, b in zip(size, wanted, strict=True) if a and b)
    rule = f"The network takes images of {_by(wanted)} pixels (height x width)"
    require(resize or fits, rule, "Resize them with tf.image.resize", size=_by(size))


def _by(size):
    return " x ".join(str(number or "?") for number in size)


def checked(images: Any, labels: Any, weights: Any = None) -> tuple:
    """Checks that images, labels and weights form examples.

    Args:
        images: `[N, h, w, channels]`.
        labels: `[N]` or `[N, 1]`.
        weights: `[N]` or `[N, 1]`, or None.

    Returns:
        (images, int64 labels `[N]`), or (images, labels, float32 weights `[N]`).

    Raises:
        ValueError: the lengths differ, or a label or a weight is invalid.
    """
    arrays = {"images": images, "labels": whole_labels(labels)}
    if weights is not None:
        arrays["weights"] = np.asarray(weights, np.float32).reshape(-1)
    counts = {name: len(array) for name, array in arrays.items()}
    rule = "images, labels and weights must have the same length, at least 1"
    require(counts["labels"] > 0 and len(set(counts.values())) == 1, rule, **counts)
    bad = bad_weights(arrays.get("weights", []))
    if bad.size:
        received = {f"weights[{bad[0]}]": arrays["weights"][bad[0]]}
        require(False, "Weights must be finite and must not be negative", **received)
    return tuple(arrays.values())


def check_classes(labels: Any, num_classes: int) -> None:
    """Raises ValueError if a label is outside [0, num_classes)."""
    labels = np.asarray(labels)
    outside = labels[(labels < 0) | (labels >= num_classes)]
    rule = f"Labels must be in [0, num_classes={num_classes})"
    require(not outside.size, rule, labels=outside[:9])


def check_class_weight(class_weight: Any) -> None:
    """Raises ValueError unless `class_weight` is None or `{label: weight}`."""
    weights = list(class_weight.values()) if isinstance(class_weight, dict) else []
    fits = class_weight is None or (weights and not bad_weights(weights).size)
    rule = "class_weight must be {label: weight} with finite weights, none negative"
    require(fits, rule, class_weight=class_weight)


def pad(images: Any, labels: Any, weights: Any, size: int) -> tuple[tf.Tensor, ...]:
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
    columns = [images, labels] if weights is None else [images, labels, weights]
    with tf.device("CPU"):
        real = tf.constant(np.arange(size) < len(labels), tf.float32)
        if len(labels) == size:
            return *map(tf.convert_to_tensor, columns), real
        index = np.arange(size) % len(labels)
        columns = [tf.gather(column, index) for column in columns]
        if weights is not None:
            columns[2] *= real
        return *columns, real


def weighted(
    batch: tuple[tf.Tensor, ...], class_weight: Mapping[int, float] | None
) -> tuple[tf.Tensor, ...]:
    """Multiplies the weights of a batch from `pad` by the weights of its classes.

    Args:
        batch: (images, labels, real) or (images, labels, weights, real).
        class_weight: `{label: weight}`; other classes have weight 1. None returns the
            batch unchanged.
    """
    if class_weight is None:
        return batch
    images, labels, weights = batch[:3]
    factors = [class_weight.get(label, 1.0) for label in labels.numpy().tolist()]
    with tf.device("CPU"):
        return images, labels, np.array(factors, np.float32) * weights, batch[-1]


def padded_size(batch_size: int, num_replicas: int) -> int:
    """Returns the smallest multiple of the replica count that fits the batch."""
    return -(-batch_size // num_replicas) * num_replicas


def own_range(strategy: tf.distribute.Strategy, size: int) -> tuple[int, int]:
    """Returns which examples of a padded global batch this process's replicas get.

    Returns:
        (index of the first example, index of the last + 1).
    """
    share = size // strategy.num_replicas_in_sync
    here = local_replicas(strategy)
    return here.start * share, here.stop * share


def split(strategy: tf.distribute.Strategy, tensors: Sequence[tf.Tensor]) -> Any:
    """Splits padded global tensors `[n · b, ...]` into each replica's `[b, ...]`."""
    return send(strategy, tensors)()


def send(
    strategy: tf.distribute.Strategy,
    tensors: Sequence[tf.Tensor],
    local: bool = False,
    pool: Executor | None = None,
) -> Callable[[], Any]:
    """Splits a global batch in host memory and sends each replica's part to its GPU.

    Args:
        strategy: the `tf.distribute.Strategy`.
        tensors: the padded global batch, `[n · b, ...]`.
        local: whether `tensors` are only this process's part of it, see `own_range`.
        pool: threads that copy the parts to the replicas' devices in the background. A
            copy to a GPU begins when the GPU has done all work that it already has, and
            blocks its thread until then. None copies when the result is called.

    Returns:
        Function that waits for the copies and returns each replica's `[b, ...]`; call
        it once.
    """
    own = local_replicas(strategy)
    here = own if local else range(strategy.num_replicas_in_sync)
    first = own.start - here.start
    with tf.device("CPU"):
        columns = [tf.split(t, len(here)) if len(here) > 1 else [t] for t in tensors]
    parts = list(zip(*columns, strict=True))[first : first + len(own)]
    copy: Callable = map if pool is None else pool.map
    copied = copy(_copy, parts, local_devices(strategy))
    return lambda: per_replica(strategy, list(copied))


def per_replica(strategy: tf.distribute.Strategy, values: Sequence[Any]) -> Any:
    """Returns a per-replica value.

    Args:
        strategy: the `tf.distribute.Strategy`.
        values: the value of each replica of this process, in order.
    """
    first = local_replicas(strategy).start

    def of_replica(context):
        replica = int(tf.get_static_value(context.replica_id_in_sync_group))
        return values[replica - first]

    return strategy.experimental_distribute_values_from_function(of_replica)


def _copy(tensors, device):
    with tf.device(device):
        return tuple(tf.identity(tensor) for tensor in tensors)
