"""Blocks of images: decoded, framed and changed at random, many at a time."""

from __future__ import annotations

import tensorflow as tf

from plsc_tf.data import images
from plsc_tf.data.preprocessing import Preprocessing

_MOST_PICTURES = 256
_BLOCK_BYTES = 2**24


def block_size(batch_size: int, image_size: tuple[int, int]) -> int:
    """Images that are made together: a divisor of the batch size.

    tf.data's work for an element of a `map` is a fifth of that of decoding a small
    image, so a block holds many; but not more than what fits a few megabytes, so
    that there is work for all threads and memory for all blocks.
    """
    fitting = _BLOCK_BYTES // (3 * image_size[0] * image_size[1])
    most = min(_MOST_PICTURES, max(1, fitting))
    sizes = [n for n in range(1, min(most, batch_size) + 1) if batch_size % n == 0]
    # A batch whose divisors are tiny or itself, such as a prime, is one block.
    return sizes[-1] if 8 * sizes[-1] >= min(most, batch_size) else batch_size


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
        decisions: what happens to each of them, from `Preprocessing.decide`.
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
    # Blocks are made in parallel; within one, a thread for itself is faster.
    one = _by_preprocessing(made, training, framed)
    return tf.map_fn(
        one, (stored, decisions), fn_output_signature=spec, parallel_iterations=1
    )


def _by_preprocessing(made, training, framed):
    def one(item):
        image, decision = item
        image = dense(image)
        if training:
            image = made.apply(image if framed else made.prepare(image), decision)
        elif not framed:
            image = made.evaluate(image)
        return tf.ensure_shape(image, [*made.image_size, 3])

    return one


def _stretch(contents, mirrored, size):
    """Decodes, resizes and mirrors; what has the right size at once.

    The mirrored images have a loop of their own: a decision for each image, and
    what `map_fn` needs to hand it on, take 8 of the 90 microseconds of a face.
    """
    pictures = tf.TensorArray(
        tf.uint8, size=tf.size(contents), element_shape=[*size, 3]
    )
    plain = tf.range(tf.size(contents))
    if mirrored is not None:
        places = tf.cast(tf.where(mirrored)[:, 0], tf.int32)
        pictures = _decode_into(
            pictures, contents, places, size, lambda image: tf.reverse(image, [1])
        )
        plain = tf.cast(tf.where(~mirrored)[:, 0], tf.int32)
    pictures = _decode_into(pictures, contents, plain, size, lambda image: image)
    return pictures.stack()


def _decode_into(pictures, contents, places, size, change):
    """Writes the images of some places into a `TensorArray`."""
    count = tf.size(places)

    def body(step, pictures):
        place = places[step]
        image = images.resize(images.decode(tf.gather(contents, place)), size)
        return step + 1, pictures.write(place, change(image))

    return tf.while_loop(
        lambda step, _: step < count, body, (0, pictures), parallel_iterations=1
    )[1]


def filled_up(block: tuple[tf.Tensor, ...], size: int) -> tuple[tf.Tensor, ...]:
    """Pads a last, smaller block to its full size, to be stacked with the others."""
    missing = size - tf.shape(block[0])[0]

    def pad(tensor):
        return tf.pad(tensor, [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1))

    block = tf.cond(missing > 0, lambda: tuple(map(pad, block)), lambda: block)
    return tuple(tf.ensure_shape(each, [size, *each.shape[1:]]) for each in block)


def dense(image) -> tf.Tensor:
    """An image of a block of images of different sizes, as a tensor."""
    return image.to_tensor() if isinstance(image, tf.RaggedTensor) else image
