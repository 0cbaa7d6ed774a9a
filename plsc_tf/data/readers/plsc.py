"""Readers in PLSC's form: functions that return an iterator of samples or batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from plsc_tf.data.pairs import Pairs
from plsc_tf.data.pixel_range import check_range
from plsc_tf.data.readers.python import from_generator, to_picture
from plsc_tf.data.source import Source


def samples(reader: Callable) -> Iterator:
    """Yields what a reader yields one by one, also where it yields batches.

    Args:
        reader: takes nothing and returns an iterator of samples, or of lists of
            samples, as `paddle.batch` makes them of such a reader.
    """
    for item in reader():
        batch = isinstance(item, list) and all(isinstance(one, tuple) for one in item)
        yield from item if batch else (item,)


def from_reader(
    reader: Callable | Source,
    *,
    name: str = "train_reader",
    num_classes: int | None = None,
    num_examples: int | None = None,
) -> Source:
    """Makes a source of a reader of (image, label).

    Images may be encoded bytes or arrays of 0...255, [3, h, w] as PLSC's readers yield
    them, [h, w, 3] or [h, w].

    Args:
        reader: see `samples`. One that has a `source`, as those of
            `plsc_tf.utils.base64_reader` have, is read in any order by it, and says
            itself how many classes it has.
        name: for messages.
        num_classes: number of classes, None if unknown.
        num_examples: examples per epoch, None if unknown.

    Raises:
        ValueError: it is not a function, or yields something else.
    """
    if isinstance(reader, Source):
        return reader
    if hasattr(reader, "source"):
        return reader.source()
    if not callable(reader):
        raise ValueError(
            f"{name} must be a function that returns an iterator of (image, label), "
            "since each epoch calls it anew. Received: "
            f"{type(reader).__name__}; pass the function itself."
        )
    return from_generator(
        lambda: samples(reader),
        name=name,
        num_classes=num_classes,
        num_examples=num_examples,
    )


def pairs_from_reader(reader: Callable, name: str = "test_reader") -> Pairs:
    """Makes a verification set of a reader of (left image, right image, same).

    Args:
        reader: see `samples`. Images are encoded bytes or arrays of 0...255, the latter
            all of one size.
        name: of the set.

    Raises:
        ValueError: it yields something else.
    """
    images, same = [], []
    for number, item in enumerate(samples(reader)):
        if not isinstance(item, tuple) or len(item) != 3:
            raise ValueError(
                f"{name} must yield (left image, right image, same). Received at pair "
                f"{number}: {type(item).__name__}"
                f"{f' of {len(item)}' if hasattr(item, '__len__') else ''}."
            )
        images += [_rgb(image, name, number) for image in item[:2]]
        same.append(bool(item[2]))
    order = np.arange(len(images))
    shapes = {getattr(image, "shape", "bytes") for image in images}
    if shapes - {"bytes"}:
        if len(shapes) > 1:
            raise ValueError(
                f"{name} must yield arrays of one size, or all encoded. Received: "
                f"{', '.join(map(str, list(shapes)[:3]))}."
            )
        images = np.stack(images)
    return Pairs(name, images, order[0::2], order[1::2], np.array(same, bool))


def _rgb(image, name, number):
    picture = to_picture(image, name, number)
    if isinstance(picture, bytes):
        return picture
    check_range(np.asarray(image), name)
    return np.broadcast_to(picture, (*picture.shape[:2], 3))
