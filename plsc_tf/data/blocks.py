"""Decodes, frames and augments images in blocks."""

import tensorflow as tf

from plsc_tf.data.augmentation import NUM_CHANCES
from plsc_tf.data.images import decode
from plsc_tf.data.preprocessing import Preprocessing
from plsc_tf.data.source import map_rows

_MOST_IMAGES = 256
_BLOCK_BYTES = 2**24
_PHILOX = 1
# Philox produces four 32-bit numbers for each value of its counter.
_PER_COUNT = 4


def block_size(batch_size: int, image_size: tuple[int, int]) -> int:
    """Returns the number of images to process together.

    tf.data's overhead per element of a `map` is a fifth of the time it takes to decode
    a small image, so a block has many images. Its size is limited to a few megabytes:
    with larger blocks, some threads would be idle and memory could run out.
    """
    fitting = _BLOCK_BYTES // (3 * image_size[0] * image_size[1])
    return min(_MOST_IMAGES, max(1, fitting), batch_size)


def chances(seed, positions: tf.Tensor) -> tf.Tensor:
    """Draws the random numbers for the examples at the given positions of an epoch.

    The numbers for a position do not depend on its block. Numbers are drawn for every
    position between the smallest and the largest one.

    Args:
        seed: int64 scalar.
        positions: int64 `[n]`, n > 0.

    Returns:
        float32 `[n, NUM_CHANCES]`, uniform in [0, 1).
    """
    first = tf.reduce_min(positions)
    count = tf.reduce_max(positions) - first + 1
    begin = first * (NUM_CHANCES // _PER_COUNT)
    drawn = tf.raw_ops.StatelessRandomUniformV2(
        shape=tf.stack([count, NUM_CHANCES]),
        key=tf.cast(tf.reshape(seed, [1]), tf.uint64),
        counter=tf.cast(tf.stack([begin, tf.zeros_like(begin)]), tf.uint64),
        alg=_PHILOX,
        dtype=tf.float32,
    )
    return tf.gather(drawn, positions - first)


def make_images(
    stored: tf.Tensor,
    decisions: dict[str, tf.Tensor],
    preprocessing: Preprocessing,
    *,
    training: bool,
    framed: bool,
    sizes: tf.Tensor | None = None,
) -> tf.Tensor:
    """Turns a block of stored images into images for a batch.

    Args:
        stored: encoded images, string `[n]`, or pixels, uint8 `[n, h, w, 3]`, possibly
            as a RaggedTensor.
        decisions: random changes to each image, from `Preprocessing.decide`.
        preprocessing: decodes, frames and changes an image.
        training: whether to frame the images for training rather than evaluation.
        framed: whether the images are already framed, such as those from a cache.
        sizes: (height, width) of encoded images where they are known, int32 `[n, 2]`.

    Returns:
        uint8 `[n, height, width, 3]`.
    """
    size = preprocessing.image_size
    if framed and not decisions and tuple(stored.shape[1:3]) == size:
        return stored

    def one(item):
        image, decision = item
        if training:
            image = preprocessing.apply(image, decision)
        elif not framed:
            image = preprocessing.evaluate(image)
        is_known = image.shape == (*size, 3)
        return image if is_known else tf.ensure_shape(image, [*size, 3])

    def one_of_size(item):
        return one((tf.ensure_shape(decode(item[0]), [*size, 3]), item[1]))

    def in_general():
        return map_rows(one, (stored, decisions))

    if sizes is None:
        return in_general()
    # An image of known size needs no branch that resizes it.
    same = tf.reduce_all(sizes == size)
    return tf.cond(same, lambda: map_rows(one_of_size, (stored, decisions)), in_general)
