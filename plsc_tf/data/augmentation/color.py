"""Operations on colors and on sharpness; each is pure, for one image [h, w, 3]."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from plsc_tf.data.augmentation.geometry import to_uint8

# Luma weights of ITU-R BT.601, those of JPEG and of Pillow's convert("L").
LUMA = (0.299, 0.587, 0.114)
# The ways of resizing that `low_resolution` chooses from (AdaFace: OpenCV's nearest,
# linear, cubic, area and Lanczos), without antialiasing.
METHODS = ("nearest", "bilinear", "bicubic", "area", "lanczos3")


def luma(image: tf.Tensor) -> tf.Tensor:
    """Brightness of RGB pixels, float [h, w, 1]."""
    flat = tf.matmul(tf.reshape(image, [-1, 3]), tf.constant(LUMA, shape=[3, 1]))
    return tf.reshape(flat, [*image.shape[:2], 1])


def blend(image: tf.Tensor, other, factor) -> tf.Tensor:
    """other + factor (image - other), within 0...255; a factor of 1 is the image."""
    return tf.clip_by_value(other + factor * (image - other), 0, 255)


def change_colors(image: tf.Tensor, change: tf.Tensor, *, contrast: bool) -> tf.Tensor:
    """Maps the colors of all pixels linearly and rounds once, at the end.

    Args:
        image: uint8 [h, w, 3] of static size.
        change: float [4, 3], see `color_maps`.
        contrast: whether the map needs the image's mean.
    """
    pixels = tf.reshape(tf.cast(image, tf.float32), [-1, 3])
    added = change[3, 0]
    if contrast:
        added += change[3, 1] * tf.tensordot(tf.reduce_mean(pixels, 0), LUMA, 1)
    return to_uint8(tf.reshape(tf.matmul(pixels, change[:3]) + added, image.shape))


def color_maps(brightness, levels, contrast, saturation, hue) -> tf.Tensor:
    """Brightness, then contrast, saturation and hue, as one map of RGB colors.

    With the luma Y of a pixel p and m of the image's mean, brightness f, levels l,
    contrast c: the pixel becomes c f p + l + (1 - c) f m; then Y + s (p - Y) for the
    saturation s; then its I and Q (NTSC) are turned by the hue.

    Args:
        brightness: factors, float [n]; so for all.
        levels: added to the brightness.
        contrast: factors.
        saturation: factors.
        hue: shares of the full circle.

    Returns:
        float32 [n, 4, 3]: the transposed matrix c f A, then [l, (1 - c) f, 0].
    """
    angle = hue * (2 * math.pi)
    cos, sin = tf.cos(angle), tf.sin(angle)
    to_yiq = np.array([LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
    from_yiq = np.linalg.inv(to_yiq)
    # The rotation is cos and sin times fixed matrices; rows that are not Y sum to 0,
    # so that grey stays grey.
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
    """Takes the colors away, uint8 [h, w, 3]."""
    grey = to_uint8(luma(tf.cast(image, tf.float32)))
    return tf.tile(grey, [1, 1, 3])


def low_resolution(image: tf.Tensor, size: tf.Tensor, methods: tf.Tensor) -> tf.Tensor:
    """Makes an image small and large again (AdaFace, arXiv:2204.00964).

    Args:
        image: uint8 [h, w, 3] of static size.
        size: int32 [2], height and width in between.
        methods: int32 [2], places in `METHODS` of the way down and the way up.
    """
    small = _resize(image, size, methods[0])
    large = _resize(small, list(image.shape[:2]), methods[1])
    return tf.ensure_shape(large, image.shape)


def _resize(image, size, method):
    def resized(name):
        return lambda: to_uint8(
            tf.cast(tf.image.resize(image, size, method=name), tf.float32)
        )

    result = tf.switch_case(method, [resized(name) for name in METHODS])
    return tf.ensure_shape(result, [None, None, 3])
