"""Pictures: decoding, resizing and augmentation, the same everywhere.

Training, evaluation and the exported model all decode and resize with these two
functions, so that an embedding does not depend on who asked for it. Everything
runs inside tf.data and in graphs; pictures are RGB, uint8 outside.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

# Luma weights of ITU-R BT.601, those of JPEG and of Pillow's convert("L").
_LUMA = (0.299, 0.587, 0.114)


def decode(data: tf.Tensor) -> tf.Tensor:
    """Decodes one JPEG, PNG or GIF (its first frame) to RGB.

    The accurate inverse DCT equals Pillow's pixels; TensorFlow's default differs
    by one level on average.

    Args:
        data: string scalar, the bytes of the file.

    Returns:
        uint8 [h, w, 3].
    """
    image = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    return tf.ensure_shape(image, [None, None, 3])


def resize(images: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes to exactly `size`: bilinear with antialiasing, rounded to uint8.

    The aspect ratio is not kept. Pictures that have the size already are returned
    as they are.

    Args:
        images: uint8 [h, w, 3] or [n, h, w, 3].
        size: (height, width) in pixels.

    Returns:
        uint8 of the same rank.
    """
    images = tf.convert_to_tensor(images)
    height, width = size
    rank = images.shape.rank
    final = [*images.shape[: rank - 3], height, width, 3]
    if images.shape[-3:-1] == (height, width):
        return images

    def resized():
        result = tf.image.resize(images, size, method="bilinear", antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(result), 0, 255), tf.uint8)

    if images.shape[-3:-1].is_fully_defined():
        return tf.ensure_shape(resized(), final)
    same = tf.reduce_all(tf.equal(tf.shape(images)[-3:-1], [height, width]))
    return tf.ensure_shape(tf.cond(same, lambda: images, resized), final)


def to_rgb(image: tf.Tensor) -> tf.Tensor:
    """Turns an image as a source gives it into uint8 [h, w, 3].

    Args:
        image: string scalar (an encoded file), or uint8 or float in 0...255 of
            shape [h, w], [h, w, 1] or [h, w, 3].
    """
    if image.dtype == tf.string:
        return decode(image)
    if image.dtype != tf.uint8:
        image = tf.round(tf.clip_by_value(tf.cast(image, tf.float32), 0, 255))
        image = tf.cast(image, tf.uint8)
    if image.shape.rank == 2:
        image = image[..., tf.newaxis]
    if image.shape.rank != 3 or image.shape[-1] not in (1, 3, None):
        raise ValueError(
            "An image must be encoded bytes or an array [height, width], "
            "[height, width, 1] or [height, width, 3]. "
            f"Received: shape={tuple(image.shape)}."
        )
    if image.shape[-1] == 1:
        return tf.image.grayscale_to_rgb(image)
    return tf.ensure_shape(image, [None, None, 3])


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What may happen to a training picture; every field's 0 switches it off.

    Args:
        flip: probability of mirroring left and right.
        rotate: largest rotation either way, in degrees (PLSC: 10).
        shift: largest shift either way, as a share of height and width; whole
            pixels.
        crop_scale: (smallest, largest) share of the area that a random resized crop
            keeps, with an aspect ratio of 3/4 to 4/3 (PLSC: 0.08, 1.0); None for no
            crop.
        zoom: largest change of size, larger or smaller, as a share.
        shear: largest shear either way, as a share of the height.
        color_jitter: brightness, contrast and saturation are multiplied by factors
            in 1 - color_jitter ... 1 + color_jitter (PLSC: 0.2).
        grey: probability of a grey picture.
        cutout: largest side of an erased square, as a share of the shorter side.
    """

    flip: float = 0.0
    rotate: float = 0.0
    shift: float = 0.0
    crop_scale: tuple[float, float] | None = None
    zoom: float = 0.0
    shear: float = 0.0
    color_jitter: float = 0.0
    grey: float = 0.0
    cutout: float = 0.0

    def __post_init__(self):
        bounds = {
            "flip": 1,
            "rotate": 180,
            "shift": 1,
            "zoom": 0.9,
            "shear": 1,
            "color_jitter": 1,
            "grey": 1,
            "cutout": 1,
        }
        for name, upper in bounds.items():
            value = getattr(self, name)
            if not 0 <= value <= upper:
                raise ValueError(
                    f"{name} must be in 0...{upper}. Received: {name}={value}."
                )
        if self.crop_scale is not None:
            low, high = self.crop_scale
            if not 0 < low <= high <= 1:
                raise ValueError(
                    "crop_scale must be (smallest, largest) with 0 < smallest <= "
                    f"largest <= 1. Received: crop_scale={self.crop_scale}."
                )

    @classmethod
    def named(cls, name: str | Augmentation | None) -> Augmentation | None:
        """Returns the augmentation of this name: "face" (mirroring) or "none"."""
        if name is None or isinstance(name, Augmentation):
            return name
        if name == "face":
            return cls(flip=0.5)
        if name == "none":
            return None
        raise ValueError(
            "augmentation must be 'face', 'none' or an Augmentation. "
            f"Received: augmentation={name!r}."
        )


def augment(image: tf.Tensor, seed: tf.Tensor, options: Augmentation) -> tf.Tensor:
    """Changes a picture at random; the same seed gives the same picture.

    Args:
        image: uint8 [h, w, 3] of static size.
        seed: int64 [2].
        options: what may happen.

    Returns:
        uint8 [h, w, 3].
    """
    # One draw for everything: a random op per decision would cost more than the
    # decisions. Each decision has its own column, so that switching one on does
    # not change the others.
    chance = tf.unstack(tf.random.stateless_uniform([16], seed))
    if options.rotate or options.crop_scale or options.zoom or options.shear:
        image = _warp(image, [*chance[:6], *chance[14:]], options)
    elif options.flip or options.shift:
        image = _mirror_and_shift(image, chance[:3], options)
    if options.color_jitter or options.grey:
        image = _recolour(image, chance[6:10], options)
    if options.cutout:
        image = _cut_out(image, chance[10:13], options.cutout)
    return image


def _mirror_and_shift(image, chance, options: Augmentation):
    """Mirrors and shifts by whole pixels; edges are repeated."""
    height, width = image.shape[:2]
    columns = tf.range(width)
    if options.shift:
        rows = tf.range(height) - _pixels(chance[1], options.shift, height)
        image = tf.gather(image, tf.clip_by_value(rows, 0, height - 1))
        columns = columns - _pixels(chance[2], options.shift, width)
        columns = tf.clip_by_value(columns, 0, width - 1)
    columns = tf.where(chance[0] < options.flip, columns[::-1], columns)
    return tf.gather(image, columns, axis=1)


def _pixels(chance, share: float, length: int):
    """A whole number of pixels in -share*length ... share*length."""
    largest = round(share * length)
    return tf.cast(tf.floor(chance * (2 * largest + 1)), tf.int32) - largest


def _warp(image, chance, options: Augmentation):
    """Mirror, rotation, shift, crop, zoom and shear as one map, one interpolation."""
    height, width = image.shape[:2]
    angle = (2 * chance[3] - 1) * math.radians(options.rotate)
    mirror = tf.where(chance[0] < options.flip, -1.0, 1.0)
    across, down, move_x, move_y = 1.0, 1.0, 0.0, 0.0
    if options.crop_scale:
        low, high = options.crop_scale
        area = low + chance[4] * (high - low)
        ratio = tf.exp((2 * chance[5] - 1) * math.log(4 / 3))
        across = tf.minimum(tf.sqrt(area * ratio), 1.0)
        down = tf.minimum(tf.sqrt(area / ratio), 1.0)
        move_x = (2 * chance[2] - 1) * (1 - across) * (width - 1) / 2
        move_y = (2 * chance[1] - 1) * (1 - down) * (height - 1) / 2
    if options.zoom:
        size = 1 + options.zoom * (2 * chance[6] - 1)
        across, down = across / size, down / size
    if options.shift:
        move_x -= tf.cast(_pixels(chance[2], options.shift, width), tf.float32)
        move_y -= tf.cast(_pixels(chance[1], options.shift, height), tf.float32)
    # The op wants the map from output to input pixels: x' = a x + b y + c.
    center_x, center_y = (width - 1) / 2, (height - 1) / 2
    a, b = mirror * across * tf.cos(angle), -mirror * down * tf.sin(angle)
    d, e = across * tf.sin(angle), down * tf.cos(angle)
    if options.shear:
        slant = options.shear * (2 * chance[7] - 1)
        b, e = b + a * slant, e + d * slant
    c = center_x + move_x - a * center_x - b * center_y
    f = center_y + move_y - d * center_x - e * center_y
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(image, tf.float32)[tf.newaxis],
        transforms=tf.stack([a, b, c, d, e, f, 0.0, 0.0])[tf.newaxis],
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )[0]
    return tf.ensure_shape(_to_uint8(warped), [height, width, 3])


def _recolour(image, chance, options: Augmentation):
    """Brightness, contrast and saturation by PLSC's factors, then perhaps grey."""
    image = tf.cast(image, tf.float32)
    if options.color_jitter:
        factors = [1 + options.color_jitter * (2 * c - 1) for c in chance[:3]]
        image = tf.clip_by_value(image * factors[0], 0, 255)
        mean = tf.reduce_mean(_luma(image))
        image = tf.clip_by_value(mean + factors[1] * (image - mean), 0, 255)
        grey = _luma(image)
        image = tf.clip_by_value(grey + factors[2] * (image - grey), 0, 255)
    if options.grey:
        grey = tf.broadcast_to(_luma(image), tf.shape(image))
        image = tf.where(chance[3] < options.grey, grey, image)
    return _to_uint8(image)


def _luma(image):
    """Brightness of RGB pixels, float [h, w, 1]."""
    return tf.reduce_sum(image * tf.constant(_LUMA), axis=-1, keepdims=True)


def _cut_out(image, chance, share: float):
    """Paints a square of random place and size grey (DeVries & Taylor 2017)."""
    height, width = image.shape[:2]
    half = chance[0] * share * min(height, width) / 2
    rows = tf.abs(tf.range(height, dtype=tf.float32) - chance[1] * height) < half
    columns = tf.abs(tf.range(width, dtype=tf.float32) - chance[2] * width) < half
    erased = (rows[:, tf.newaxis] & columns)[..., tf.newaxis]
    return tf.where(erased, tf.constant(128, tf.uint8), image)


def _to_uint8(image):
    """Rounds float pixels to uint8."""
    return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)
