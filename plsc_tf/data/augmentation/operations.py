"""Operations on pixels: pure functions of one image, uint8 `[h, w, 3]`.

`affine` and `color_maps` compute maps for a whole block; they take float `[n]`.
"""

import math

import numpy as np
import tensorflow as tf

from plsc_tf.data.images import to_uint8

# Luma weights of ITU-R BT.601, which JPEG and Pillow's convert("L") also use.
LUMA = (0.299, 0.587, 0.114)
# The resizing methods that `low_resolution` chooses from, without antialiasing (AdaFace
# uses OpenCV's nearest, linear, cubic, area and Lanczos).
METHODS = ("nearest", "bilinear", "bicubic", "area", "lanczos3")
GREY = 128
# Of erased rectangles: the smallest aspect ratio, and fractions of the image's area.
_FLATTEST, _ERASED = 0.3, (0.02, 0.4)


def mirror(image: tf.Tensor, mirrored: tf.Tensor) -> tf.Tensor:
    """Mirrors the image left to right if `mirrored`, a bool scalar, is true."""
    # `tf.reverse` reverses the columns of `[h, w, 3]` row by row, which takes 7
    # microseconds at 112x112. Gathering columns takes 80, and tf.where would reverse
    # every image.
    return tf.cond(mirrored, lambda: tf.reverse(image, [1]), lambda: image)


def shift(image: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Shifts the image by whole pixels, repeating the edges.

    Args:
        image: uint8 `[h, w, 3]` of static size.
        offset: int32 `[2]`, pixels down and to the right, smaller than the sides.
    """
    for axis, side in enumerate(image.shape[:2]):
        source = tf.clip_by_value(tf.range(side) - offset[axis], 0, side - 1)
        image = tf.gather(image, source, axis=axis)
    return image


def warp(
    image: tf.Tensor,
    transform: tf.Tensor,
    fill: int | None = None,
    size: tuple[int, int] | None = None,
) -> tf.Tensor:
    """Warps an image by an affine map, with bilinear interpolation.

    Args:
        image: uint8 `[h, w, 3]`.
        transform: float `[8]`, see `affine`.
        fill: level of pixels outside the image; None repeats the edges.
        size: (height, width) of the result; None keeps the image's size, which must
            be static.
    """
    size = list(size or image.shape[:2])
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(image, tf.float32)[tf.newaxis],
        transforms=transform[tf.newaxis],
        output_shape=size,
        fill_value=float(fill or 0),
        interpolation="BILINEAR",
        fill_mode="NEAREST" if fill is None else "CONSTANT",
    )[0]
    warped = to_uint8(warped)
    warped.set_shape([*size, 3])
    return warped


def affine(matrix, move, size: tuple[int, int]) -> tf.Tensor:
    """Computes transforms for `warp`: maps of output to input pixels about the center.

    Args:
        matrix: ((a, b), (d, e)) for x' = a x + b y, y' = d x + e y; float `[n]` or
            scalars.
        move: (x, y) in input pixels, added after the matrix is applied.
        size: (height, width) of the image.

    Returns:
        float32 `[n, 8]`, or `[8]` for scalars.
    """
    (a, b), (d, e) = matrix
    center_x, center_y = (size[1] - 1) / 2, (size[0] - 1) / 2
    c = center_x + move[0] - a * center_x - b * center_y
    f = center_y + move[1] - d * center_x - e * center_y
    rows = [tf.cast(value, tf.float32) for value in (a, b, c, d, e, f)]
    zero = tf.zeros_like(sum(rows))
    return tf.stack([*(row + zero for row in rows), zero, zero], axis=-1)


def keep_box(image: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
    """Blackens everything outside a rectangle (AdaFace's crop augmentation).

    Args:
        image: uint8 `[h, w, 3]` of static size.
        box: float `[2, 2]`, the first row and column of the rectangle, and the row and
            column after its last ones.
    """
    return tf.where(in_box(box, image), image, tf.zeros_like(image))


def cut_out(image: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
    """Fills a rectangle with medium gray (DeVries & Taylor 2017, arXiv:1708.04552).

    Args:
        image: uint8 `[h, w, 3]` of static size.
        box: float `[2, 2]`, see `keep_box`; an empty rectangle changes nothing.
    """
    return tf.where(in_box(box, image), tf.constant(GREY, tf.uint8), image)


def in_box(box, image):
    """Returns which pixels are in a rectangle, bool `[h, w, 1]`."""
    (top, left), (bottom, right) = (tf.unstack(corner) for corner in tf.unstack(box))
    height, width = map(float, image.shape[:2])
    rows, columns = tf.range(height)[:, tf.newaxis], tf.range(width)
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return inside[..., tf.newaxis]


def erase(image: tf.Tensor, seed: tf.Tensor, probability: float) -> tf.Tensor:
    """Fills a random rectangle with noise (Zhong et al. 2017, arXiv:1708.04896).

    Its aspect ratio, height / width, is uniform in 0.3...1 / 0.3, as in the paper. A
    rectangle that is too tall or too wide is clipped to the image; the paper draws
    another one instead.

    Args:
        image: uint8 `[h, w, 3]` of static size.
        seed: int32 `[2]`, random seed; the noise uses seed + 1.
        probability: how often to fill a rectangle; otherwise the image does not change.
    """
    sides = tf.constant([float(side) for side in image.shape[:2]])
    smallest, largest = _ERASED
    happens, area, ratio, *place = tf.unstack(tf.random.stateless_uniform([5], seed))

    def erased():
        size = (smallest + area * (largest - smallest)) * sides[0] * sides[1]
        aspect = _FLATTEST + ratio * (1 / _FLATTEST - _FLATTEST)
        lengths = tf.round(tf.stack([tf.sqrt(size * aspect), tf.sqrt(size / aspect)]))
        lengths = tf.clip_by_value(lengths, 1, sides)
        first = tf.floor(tf.stack(place) * (sides - lengths + 1))
        inside = in_box(tf.stack([first, first + lengths]), image)
        # Use a different seed than for the rectangle.
        noise = tf.random.stateless_uniform(image.shape, seed + 1, 0, 256, tf.int32)
        return tf.where(inside, tf.cast(noise, tf.uint8), image)

    return tf.cond(happens < probability, erased, lambda: image)


def luma(image: tf.Tensor) -> tf.Tensor:
    """Returns the luma of RGB pixels, float `[h, w, 1]`."""
    flat = tf.matmul(tf.reshape(image, [-1, 3]), tf.constant(LUMA, shape=[3, 1]))
    return tf.reshape(flat, [*image.shape[:2], 1])


def change_colors(image: tf.Tensor, change: tf.Tensor) -> tf.Tensor:
    """Applies a color map to all pixels, with a single rounding at the end.

    Args:
        image: uint8 `[h, w, 3]` of static size.
        change: float `[4, 3]`, one of the maps that `color_maps` returns.
    """
    pixels = tf.reshape(tf.cast(image, tf.float32), [-1, 3])
    luma_of_mean = tf.tensordot(tf.reduce_mean(pixels, 0), LUMA, 1)
    added = change[3, 0] + change[3, 1] * luma_of_mean
    return to_uint8(tf.reshape(tf.matmul(pixels, change[:3]) + added, image.shape))


def color_maps(brightness, levels, contrast, saturation, hue) -> tf.Tensor:
    """Combines brightness, contrast, saturation and hue into one map of RGB colors.

    Let Y be the luma of a pixel p and m the luma of the image's mean. With brightness
    f, levels l and contrast c, the pixel becomes c f p + l + (1 - c) f m; with
    saturation s, it becomes Y + s (p - Y); finally, its I and Q (NTSC) are rotated by
    the hue.

    Args:
        brightness: brightness factors, float `[n]`.
        levels: levels to add, float `[n]`.
        contrast: contrast factors, float `[n]`.
        saturation: saturation factors, float `[n]`.
        hue: hue rotations as fractions of the full circle, float `[n]`.

    Returns:
        float32 `[n, 4, 3]`: the transposed matrix c f A, followed by the row
        [l, (1 - c) f, 0].
    """
    angle = hue * (2 * math.pi)
    cos, sin = tf.cos(angle), tf.sin(angle)
    to_yiq = np.array([LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
    from_yiq = np.linalg.inv(to_yiq)
    # The rotation is a combination of fixed matrices with factors cos and sin. Make the
    # rows of I and Q sum to 0, so that gray stays gray.
    to_yiq[1:] -= to_yiq[1:].mean(axis=1, keepdims=True)
    parts = [np.outer(np.ones(3), LUMA)]
    parts.append(np.eye(3) - parts[0])
    parts.append(from_yiq[:, [2]] @ to_yiq[[1]] - from_yiq[:, [1]] @ to_yiq[[2]])
    grey, chroma, quarter = (tf.constant(part.T, tf.float32) for part in parts)

    def scaled(factor, matrix):
        return factor[:, tf.newaxis, tf.newaxis] * matrix

    turned = scaled(saturation * cos, chroma) + scaled(saturation * sin, quarter)
    matrix = scaled(contrast * brightness, grey + turned)
    rest = [levels, (1 - contrast) * brightness, 0 * levels]
    return tf.concat([matrix, tf.stack(rest, axis=1)[:, tf.newaxis]], axis=1)


def to_grey(image: tf.Tensor) -> tf.Tensor:
    """Converts an image to gray, uint8 `[h, w, 3]`."""
    return tf.tile(to_uint8(luma(tf.cast(image, tf.float32))), [1, 1, 3])


def low_resolution(image: tf.Tensor, size: tf.Tensor, methods: tf.Tensor) -> tf.Tensor:
    """Shrinks an image and enlarges it again (AdaFace, arXiv:2204.00964).

    Args:
        image: uint8 `[h, w, 3]` of static size.
        size: int32 `[2]`, height and width of the small image.
        methods: int32 `[2]`, indices into `METHODS` for shrinking and enlarging.
    """
    large = _resize(_resize(image, size, methods[0]), list(image.shape[:2]), methods[1])
    return tf.ensure_shape(large, image.shape)


def _resize(image, size, method):
    def resized(name):
        return lambda: to_uint8(
            tf.cast(tf.image.resize(image, size, method=name), tf.float32)
        )

    result = tf.switch_case(method, [resized(name) for name in METHODS])
    return tf.ensure_shape(result, [None, None, 3])
