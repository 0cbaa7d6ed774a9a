"""Python generators and tf.data.Datasets of (image, label) as sources."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from plsc_tf.data.pixel_range import check_range
from plsc_tf.data.stream_source import StreamSource

# How many images of an epoch are looked at: the first may be fine by chance.
_CHECKED = 16


def from_generator(
    function: Callable,
    *,
    name: str = "generator",
    num_classes: int | None = None,
    num_examples: int | None = None,
) -> StreamSource:
    """Makes a source of any Python generator function of (image, label).

    Images may be encoded bytes or arrays of 0...255: [h, w], [h, w, 3], or
    [3, h, w] as PLSC's readers yield them. The function is called once per epoch, whose
    first arrays of floats must not look as if they were normalized.

    Args:
        function: takes nothing, returns an iterator of (image, label).
        name: for messages.
        num_classes: number of classes, None if unknown.
        num_examples: examples per epoch, None if unknown.
    """
    if not callable(function):
        raise ValueError(
            "from_generator needs the function, not what it returns, because each "
            f"epoch calls it anew. Received: {type(function).__name__}."
        )
    first = next(iter(function()), None)
    if first is None:
        raise ValueError(f"{name} yields no examples.")
    image, _ = _convert(first, name, 0)
    spec = tf.TensorSpec([], tf.string)
    if not isinstance(image, bytes):
        check_range(np.asarray(first[0]), name)  # Now, and not in the first epoch.
        spec = tf.TensorSpec([None, None, image.shape[-1]], tf.uint8)

    def converted():
        for number, item in enumerate(function()):
            picture, label = _convert(item, name, number)
            if number < _CHECKED and np.asarray(item[0]).dtype.kind == "f":
                check_range(np.asarray(item[0]), f"Example {number} of {name}")
            yield picture, label

    def open_part(part):
        del part
        return tf.data.Dataset.from_generator(
            converted, output_signature=(spec, tf.TensorSpec([], tf.int64))
        )

    return _single_stream(name, open_part, num_classes, num_examples)


def from_dataset(
    dataset: tf.data.Dataset,
    *,
    name: str = "tf.data.Dataset",
    num_classes: int | None = None,
    num_examples: int | None = None,
) -> StreamSource:
    """Makes a source of a tf.data.Dataset of single (image, label) elements.

    Args:
        dataset: yields (image, label): encoded bytes, or uint8 or float arrays of
            0...255 [h, w, 3]; integer labels. Neither batched nor repeated.
        name: for messages.
        num_classes: number of classes, None if unknown.
        num_examples: examples per epoch; None asks the dataset for its cardinality.
    """
    spec = dataset.element_spec
    if not (isinstance(spec, tuple) and len(spec) == 2):
        raise ValueError(
            f"{name} must yield (image, label) pairs. Received: element_spec={spec}."
        )
    image, label = spec
    one_hot = label.shape.rank == 1 and image.shape.rank in (0, 2, 3)
    if not one_hot and (image.shape.rank == 4 or label.shape.rank == 1):
        raise ValueError(
            f"{name} must yield single examples, batches are made later. "
            f"Received: element_spec={spec}. Call .unbatch() on the dataset."
        )
    if not label.dtype.is_integer or label.shape.rank not in (0, None):
        raise ValueError(
            f"{name} must yield whole numbers as labels, not one-hot vectors. "
            f"Received: {label}."
        )
    cardinality = int(dataset.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            f"{name} repeats without end, but an epoch needs one. Leave out .repeat()."
        )
    if image.dtype.is_floating:
        for picture, _ in dataset.take(_CHECKED):
            check_range(picture.numpy(), name)
    known = num_examples or (cardinality if cardinality >= 0 else None)
    return _single_stream(name, lambda part: dataset, num_classes, known)


def _single_stream(name, open_part, num_classes, num_examples) -> StreamSource:
    return StreamSource(
        name,
        (num_examples,),
        open_part,
        lambda example: example,
        num_classes=num_classes,
    )


def _convert(item, name: str, number: int) -> tuple[bytes | np.ndarray, int]:
    """Returns (bytes or uint8 [h, w, channels], label) of what a generator yields."""
    try:
        image, label = item
        label = _whole(label)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must yield (image, label) with a whole number as label. "
            f"Received at example {number}: {_shown(item)}."
        ) from error
    return to_picture(image, name, number), label


def to_picture(image, name: str, number: int) -> bytes | np.ndarray:
    """Returns an image that a user's code yields, as bytes or uint8 [h, w, channels].

    Args:
        image: encoded bytes, or numbers: [h, w], [h, w, 1 or 3], or [3, h, w] as PLSC's
            readers yield them; rounded, and cut to 0...255.
        name: of what yields it, for messages.
        number: of the example.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(image, bytes | bytearray | np.bytes_):
        return bytes(image)
    try:
        image = np.asarray(image)
    except ValueError:
        # Lists of different lengths.
        image = np.empty(0, object)
    if image.ndim == 3 and image.shape[0] == 3 and image.shape[-1] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.ndim == 2:
        image = image[..., np.newaxis]
    if image.ndim != 3 or image.shape[-1] not in (1, 3) or not image.size:
        raise ValueError(
            f"{name} must yield images as bytes or arrays [height, width, 3]. "
            f"Received at example {number}: shape={image.shape}."
        )
    if image.dtype.kind not in "buif" or not np.isfinite(image).all():
        raise ValueError(
            f"{name} must yield pixels that are numbers in 0...255. "
            f"Received at example {number}: dtype={image.dtype}, or NaN or infinity."
        )
    if image.dtype != np.uint8:
        image = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    return image


def _whole(label) -> int:
    """Returns a label as int; int() alone would cut 1.7 to 1."""
    number = int(label)
    if number != label or not -(2**63) <= number < 2**63:
        raise ValueError(f"no whole number: {label}")
    return number


def _shown(item) -> str:
    kind = type(item).__name__
    if isinstance(item, tuple | list) and len(item) == 2:
        return f"{kind} of {type(item[0]).__name__} and label {item[1]!r:.80}"
    return kind
