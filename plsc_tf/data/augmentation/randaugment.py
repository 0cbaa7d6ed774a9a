"""RandAugment's operations (Cubuk et al. 2019, arXiv:1909.13719).

Each is a pure function of an image, uint8 `[h, w, 3]` of static size, and an amount in
-1...1 (0 for no change) whose absolute value is M / 10 and whose sign is random. The
maximum changes are AutoAugment's: a rotation of 30 degrees, a shear of 0.3, a shift of
0.45 of the side (150 of 331 pixels), factors of 0.1 and 1.9, and removing 4 bits.
"""

import math

import tensorflow as tf

from plsc_tf.data.augmentation import operations as ops
from plsc_tf.data.images import to_uint8

_SAME = ((1.0, 0.0), (0.0, 1.0))


def identity(image, amount):
    """Returns the image unchanged."""
    return image


def auto_contrast(image, amount):
    """Stretches each channel to 0...255; keeps channels that have a single level."""
    pixels = tf.reshape(tf.cast(image, tf.float32), [-1, 3])
    low, high = tf.reduce_min(pixels, 0), tf.reduce_max(pixels, 0)
    scale = tf.where(high > low, 255 / (high - low), 1.0)
    # 1e-3 compensates for rounding errors: 254.99... must become 255.
    offset = tf.where(high > low, -low * scale, 0.0) + 1e-3
    stretched = tf.nn.bias_add(tf.matmul(pixels, tf.linalg.diag(scale)), offset)
    return tf.cast(tf.reshape(stretched, image.shape), tf.uint8)


def equalize(image, amount):
    """Equalizes the histogram of each channel."""
    levels = tf.cast(tf.reshape(image, [-1, 3]), tf.int32)
    channels = []
    for channel in tf.unstack(levels, axis=1):
        histogram = tf.math.bincount(channel, minlength=256, maxlength=256)
        # As in Pillow, pixels of the brightest level do not count toward the step.
        step = (tf.size(channel) - histogram[tf.reduce_max(channel)]) // 255
        below = tf.cumsum(histogram, exclusive=True) + step // 2
        table = tf.where(step > 0, below // tf.maximum(step, 1), tf.range(256))
        channels.append(tf.gather(tf.minimum(table, 255), channel))
    return tf.reshape(tf.cast(tf.stack(channels, axis=1), tf.uint8), image.shape)


def rotate(image, amount):
    """Rotates by up to 30 degrees."""
    angle = amount * math.radians(30)
    cos, sin = tf.cos(angle), tf.sin(angle)
    return _moved(image, ((cos, -sin), (sin, cos)))


def shear_x(image, amount):
    """Shears horizontally by up to 0.3 of the height."""
    return _moved(image, ((1.0, 0.3 * amount), (0.0, 1.0)))


def shear_y(image, amount):
    """Shears vertically by up to 0.3 of the width."""
    return _moved(image, ((1.0, 0.0), (0.3 * amount, 1.0)))


def translate_x(image, amount):
    """Shifts horizontally by up to 0.45 of the width, in whole pixels."""
    return _moved(image, _SAME, (-tf.round(amount * 0.45 * image.shape[1]), 0.0))


def translate_y(image, amount):
    """Shifts vertically by up to 0.45 of the height, in whole pixels."""
    return _moved(image, _SAME, (0.0, -tf.round(amount * 0.45 * image.shape[0])))


def solarize(image, amount):
    """Inverts levels at or above a threshold: 256 (none) down to 0 (all)."""
    threshold = tf.cast(tf.math.ceil(256 * (1 - tf.abs(amount))), tf.int16)
    bright = tf.cast(tf.cast(image, tf.int16) >= threshold, tf.uint8)
    return tf.bitwise.bitwise_xor(image, 255 * bright)


def posterize(image, amount):
    """Clears up to 4 of the low bits of each level."""
    dropped = tf.cast(tf.round(4 * tf.abs(amount)), tf.uint8)
    return tf.bitwise.left_shift(tf.bitwise.right_shift(image, dropped), dropped)


def saturate(image, amount):
    """Multiplies the saturation by 0.1 to 1.9."""
    factor = 1 + 0.9 * amount
    grey = tf.constant(ops.LUMA, shape=[3, 1]) * tf.ones([1, 3])
    matrix = grey + factor * (tf.eye(3) - grey)
    pixels = tf.matmul(tf.reshape(tf.cast(image, tf.float32), [-1, 3]), matrix)
    return to_uint8(tf.reshape(pixels, image.shape))


def contrast(image, amount):
    """Multiplies the contrast, relative to the mean luma, by 0.1 to 1.9."""
    pixels = tf.cast(image, tf.float32)
    return _blended(pixels, tf.round(tf.reduce_mean(ops.luma(pixels))), amount)


def brighten(image, amount):
    """Multiplies the brightness by 0.1 to 1.9."""
    return _blended(tf.cast(image, tf.float32), 0.0, amount)


def sharpen(image, amount):
    """Multiplies the difference from a smoothed image by 0.1 to 1.9."""
    pixels = tf.cast(image, tf.float32)
    # Pillow's SMOOTH kernel: 5 in the center, 1 around it, divided by 13. The border is
    # not changed.
    total = tf.nn.avg_pool2d(pixels[tf.newaxis], 3, 1, "VALID")[0] * 9
    smooth = tf.round((total + 4 * pixels[1:-1, 1:-1]) / 13)
    inner = _blended(pixels[1:-1, 1:-1], smooth, amount)
    rows = tf.concat([image[1:-1, :1], inner, image[1:-1, -1:]], axis=1)
    return tf.concat([image[:1], rows, image[-1:]], axis=0)


OPERATIONS = {
    function.__name__: function
    for function in (
        *(identity, auto_contrast, equalize, rotate, solarize, saturate, posterize),
        *(contrast, brighten, sharpen, shear_x, shear_y, translate_x, translate_y),
    )
}


def choose(chance: tf.Tensor, magnitude: float):
    """Turns each uniform random number into an operation and an amount.

    Args:
        chance: float `[n]`, uniform in [0, 1).
        magnitude: M in 0...10.

    Returns:
        Indices into `OPERATIONS`, int32 `[n]`, and signed amounts, float `[n]`.
    """
    # Each operation has an equal interval of chance; its halves stand for the signs.
    halves = tf.cast(tf.floor(chance * (2 * len(OPERATIONS))), tf.int32)
    return halves // 2, tf.cast(1 - 2 * (halves % 2), tf.float32) * (magnitude / 10)


def apply(image: tf.Tensor, operation: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Applies one operation, given by its index in `OPERATIONS`."""

    def branch(function):
        return lambda: tf.ensure_shape(function(image, amount), image.shape)

    branches = [branch(function) for function in OPERATIONS.values()]
    return tf.ensure_shape(tf.switch_case(operation, branches), image.shape)


def _moved(image, matrix, move=(0.0, 0.0)):
    return ops.warp(image, ops.affine(matrix, move, tuple(image.shape[:2])), ops.GREY)


def _blended(pixels, other, amount):
    return to_uint8(other + (1 + 0.9 * amount) * (pixels - other))
