"""Images from files, decoded in the background block by block."""

import concurrent.futures
import os

import numpy as np
import tensorflow as tf

from plsc_tf.data import alignment, images
from plsc_tf.data.faults import READ_ERRORS, reason
from plsc_tf.data.source import without_autograph

# Limits of a block that is decoded: images, as photographs take long, and
# bytes of their pixels.
_BLOCK_PICTURES = 512
_BLOCK_BYTES = 128 << 20


class PictureError(ValueError):
    """An image cannot be read or decoded; the message says which."""


def blocks(paths, framing, batch_size, points=None, skipped=None):
    """Yields images block by block; the next one is decoded meanwhile.

    Args:
        paths: of the files.
        framing: the `Preprocessing` whose `evaluate` frames them.
        batch_size: blocks hold whole batches, except the last one.
        points: float32 [images, 5, 2], where the eyes, the nose and the corners of
            the mouth are, to align the images by; None: they are taken as they are.
        skipped: dict that gets {path: what is wrong} of the images that cannot be
            read, which are left out then; None: the first one ends it.

    Yields:
        (rows, pixels): numbers of the images, int64 [n], and uint8
        [n, height, width, 3].

    Raises:
        PictureError: an image cannot be read or decoded.
    """
    moves = None
    if points is not None:
        size = alignment.stored_size(framing.image_size)
        moves = alignment.transforms(points, size)
    pixels = 3 * framing.image_size[0] * framing.image_size[1]
    most = min(_BLOCK_PICTURES, _BLOCK_BYTES // pixels)
    size = batch_size * max(1, most // batch_size)
    waiting = None
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as ahead:
        for start in range(0, len(paths), size):
            chosen = slice(start, start + size)
            part = None if moves is None else moves[chosen]
            coming = ahead.submit(_decode, paths[chosen], framing, part, skipped, start)
            if waiting is not None:
                yield waiting.result()
            waiting = coming
        if waiting is not None:
            yield waiting.result()


def _decode(paths, framing, moves, skipped, first):
    """(rows, pixels) of one block, whose first image has the number `first`."""
    size = framing.image_size
    cut_size = alignment.stored_size(size)

    def whole(path):
        return framing.evaluate(tf.io.read_file(path))

    def aligned(path, move):
        picture = images.decode(tf.io.read_file(path))
        return framing.evaluate(alignment.cut_out(picture, move, cut_size))

    columns = [os.fsencode(path) for path in paths]
    dataset = tf.data.Dataset.from_tensor_slices(
        columns if moves is None else (columns, moves)
    ).map(
        without_autograph(whole if moves is None else aligned),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    pixels = np.empty((len(paths), *size, 3), np.uint8)
    rows = []
    iterator = dataset.as_numpy_iterator()
    for row, path in enumerate(paths):
        try:
            pixels[len(rows)] = next(iterator)
        except READ_ERRORS as error:
            if skipped is None:
                raise PictureError(f"{path} cannot be read: {reason(error)}") from error
            skipped[path] = reason(error)
            continue
        rows.append(first + row)
    return np.array(rows, np.int64), pixels[: len(rows)]
