"""Operations that move pixels; each is pure, for one picture uint8 [h, w, 3].

The functions that make maps work on a whole block: their arguments are float [n].
"""

from __future__ import annotations

import tensorflow as tf


def mirror(image: tf.Tensor, mirrored: tf.Tensor) -> tf.Tensor:
    """Swaps left and right where `mirrored`, a bool scalar, is true."""
    # TensorFlow reverses columns of [h, w, 3] row by row: 7 microseconds at 112x112;
    # a gather over columns takes 80, and tf.where reverses every picture.
    return tf.cond(mirrored, lambda: tf.reverse(image, [1]), lambda: image)


def shift(image: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Moves by whole pixels and repeats the edges.

    Args:
        image: uint8 [h, w, 3] of static size.
        offset: int32 [2], pixels down and to the right.
    """
    height, width = image.shape[:2]
    rows = tf.clip_by_value(tf.range(height) - offset[0], 0, height - 1)
    columns = tf.clip_by_value(tf.range(width) - offset[1], 0, width - 1)
    return tf.gather(tf.gather(image, rows), columns, axis=1)


def warp(image: tf.Tensor, transform: tf.Tensor, fill: int | None = None) -> tf.Tensor:
    """Moves pixels by an affine map, bilinear.

    Args:
        image: uint8 [h, w, 3] of static size.
        transform: float [8], see `affine`.
        fill: level of what comes from outside; None repeats the edges.
    """
    height, width = image.shape[:2]
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(image, tf.float32)[tf.newaxis],
        transforms=transform[tf.newaxis],
        output_shape=[height, width],
        fill_value=float(fill or 0),
        interpolation="BILINEAR",
        fill_mode="NEAREST" if fill is None else "CONSTANT",
    )[0]
    return tf.ensure_shape(to_uint8(warped), [height, width, 3])


def affine(matrix, move, size: tuple[int, int]) -> tf.Tensor:
    """Maps of output to input pixels about the centre, as `warp` takes them.

    Args:
        matrix: ((a, b), (d, e)): x' = a x + b y, y' = d x + e y; float [n] or
            numbers.
        move: (x, y) in pixels of the input, added after that.
        size: (height, width) of the picture.

    Returns:
        float32 [n, 8].
    """
    (a, b), (d, e) = matrix
    center_x, center_y = (size[1] - 1) / 2, (size[0] - 1) / 2
    c = center_x + move[0] - a * center_x - b * center_y
    f = center_y + move[1] - d * center_x - e * center_y
    count = tf.reduce_max([tf.size(value) for value in (a, b, c, d, e, f)])
    rows = [tf.broadcast_to(value, [count]) for value in (a, b, c, d, e, f)]
    return tf.stack([*rows, tf.zeros([count]), tf.zeros([count])], axis=1)


def keep_box(image: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
    """Paints everything outside a rectangle black (AdaFace's crop augmentation).

    Args:
        image: uint8 [h, w, 3] of static size.
        box: int32 [4]: top, left, height and width in pixels.
    """
    height, width = image.shape[:2]
    top, left, rows, columns = tf.unstack(box)
    inside = tf.slice(image, [top, left, 0], [rows, columns, 3])
    around = [
        [top, height - top - rows],
        [left, width - left - columns],
        [0, 0],
    ]
    return tf.ensure_shape(tf.pad(inside, around), image.shape)


def cut_out(image: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
    """Paints a square mid grey (DeVries & Taylor 2017, arXiv:1708.04552).

    Args:
        image: uint8 [h, w, 3] of static size.
        square: float [3]: half the side, row and column of the centre, in pixels.
    """
    height, width = image.shape[:2]
    half, row, column = tf.unstack(square)
    rows = tf.abs(tf.range(height, dtype=tf.float32) - row) < half
    columns = tf.abs(tf.range(width, dtype=tf.float32) - column) < half
    erased = (rows[:, tf.newaxis] & columns)[..., tf.newaxis]
    return tf.where(erased, tf.constant(128, tf.uint8), image)


def to_uint8(image: tf.Tensor) -> tf.Tensor:
    """Rounds float pixels to uint8."""
    return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)
