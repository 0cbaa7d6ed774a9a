"""Blocks of images: decoded, framed and augmented, many at a time."""

from __future__ import annotations

import tensorflow as tf

from plsc_tf.data import images
from plsc_tf.data.augmentation import NUM_CHANCES
from plsc_tf.data.preprocessing import Preprocessing
from plsc_tf.data.source import dense

_MOST_IMAGES = 256
_BLOCK_BYTES = 2**24
_PHILOX = 1
# Philox makes four numbers of 32 bits for each value of its counter.
_PER_COUNT = 4


def block_size(batch_size: int, image_size: tuple[int, int]) -> int:
    """Images that are made together.

    tf.data's work for an element of a `map` is a fifth of that of decoding a small
    image, so a block holds many; but not more than fit in a few megabytes, so that
    there is work for all threads and memory for all blocks.
    """
    fitting = _BLOCK_BYTES // (3 * image_size[0] * image_size[1])
    return min(_MOST_IMAGES, max(1, fitting), batch_size)


def chances(seed, positions: tf.Tensor) -> tf.Tensor:
    """Draws the random numbers of the examples at some positions of an epoch.

    A position has the same numbers in any block. Those of all positions between the
    first and the last one are drawn.

    Args:
        seed: int64 scalar.
        positions: int64 [n], n > 0.

    Returns:
        float32 [n, NUM_CHANCES], uniform in [0, 1).
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


def make_pictures(
    stored: tf.Tensor,
    decisions: dict[str, tf.Tensor],
    made: Preprocessing,
    *,
    training: bool,
    framed: bool,
) -> tf.Tensor:
    """Makes a block of images.

    Args:
        stored: strings [n], uint8 [n, h, w, 3] or the same as a RaggedTensor.
        decisions: how to change each of them, from `Preprocessing.decide`.
        made: the preprocessing.
        training: whether they are framed as for training.
        framed: whether they have been framed already: they come from a cache.

    Returns:
        uint8 [n, height, width, 3].
    """
    spec = tf.TensorSpec([*made.image_size, 3], tf.uint8)
    encoded = isinstance(stored, tf.Tensor) and stored.dtype == tf.string
    if encoded and made.stretches and set(decisions) <= {"mirror"}:
        return _stretch(stored, decisions.get("mirror"), made.image_size)
    if framed and not decisions and tuple(stored.shape[1:3]) == made.image_size:
        return stored

    def one(item):
        image, decision = dense(item[0]), item[1]
        if training:
            image = made.apply(image if framed else made.prepare(image), decision)
        elif not framed:
            image = made.evaluate(image)
        return tf.ensure_shape(image, spec.shape)

    # Blocks are made in parallel; within one, a thread for itself is faster.
    return tf.map_fn(
        one, (stored, decisions), fn_output_signature=spec, parallel_iterations=1
    )


def _stretch(contents, mirrored, size):
    """Decodes, resizes and mirrors, with less work for each image than `map_fn`."""

    def body(row, pictures):
        image = images.resize(images.decode(contents[row]), size)
        if mirrored is not None:
            image = tf.cond(
                mirrored[row], lambda: tf.reverse(image, [1]), lambda: image
            )
        return row + 1, pictures.write(row, image)

    count = tf.size(contents)
    pictures = tf.TensorArray(tf.uint8, size=count, element_shape=[*size, 3])
    return tf.while_loop(
        lambda row, _: row < count, body, (0, pictures), parallel_iterations=1
    )[1].stack()
