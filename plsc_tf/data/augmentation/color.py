"""Operations on colors and on sharpness; each is pure, for one picture [h, w, 3]."""

from __future__ import annotations

import tensorflow as tf

from plsc_tf.data.augmentation.geometry import to_uint8

# Luma weights of ITU-R BT.601, those of JPEG and of Pillow's convert("L").
_LUMA = (0.299, 0.587, 0.114)
# The ways of resizing that `low_resolution` chooses from (AdaFace: OpenCV's nearest,
# linear, cubic, area and Lanczos), without antialiasing.
METHODS = ("nearest", "bilinear", "bicubic", "area", "lanczos3")


def luma(image: tf.Tensor) -> tf.Tensor:
    """Brightness of RGB pixels, float [h, w, 1]."""
    flat = tf.matmul(tf.reshape(image, [-1, 3]), tf.constant(_LUMA, shape=[3, 1]))
    return tf.reshape(flat, [*image.shape[:2], 1])


def blend(image: tf.Tensor, other, factor) -> tf.Tensor:
    """other + factor (image - other), within 0...255; a factor of 1 is the image."""
    return tf.clip_by_value(other + factor * (image - other), 0, 255)


def change_colors(image: tf.Tensor, change: tf.Tensor, *, hue: bool) -> tf.Tensor:
    """Brightness, contrast, saturation and hue, in this order.

    Args:
        image: uint8 [h, w, 3] of static size.
        change: float [5]: factor of the brightness, levels added to it, factors of
            contrast (about the mean luma) and saturation (about the luma), turn of
            the hue.
        hue: whether the hue turns at all.
    """
    factor, levels, contrast, saturation, turn = tf.unstack(change)
    pixels = tf.cast(image, tf.float32)
    pixels = tf.clip_by_value(pixels * factor + levels, 0, 255)
    pixels = blend(pixels, tf.reduce_mean(luma(pixels)), contrast)
    pixels = blend(pixels, luma(pixels), saturation)
    if hue:
        pixels = tf.image.adjust_hue(pixels, turn)
    return to_uint8(pixels)


def to_grey(image: tf.Tensor) -> tf.Tensor:
    """Takes the colors away, uint8 [h, w, 3]."""
    grey = to_uint8(luma(tf.cast(image, tf.float32)))
    return tf.broadcast_to(grey, image.shape)


def low_resolution(image: tf.Tensor, size: tf.Tensor, methods: tf.Tensor) -> tf.Tensor:
    """Makes a picture small and large again (AdaFace, arXiv:2204.00964).

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
