"""Decodes, resizes and encodes images.

Training, evaluation and the exported model all decode and resize with these functions
and therefore see the same pixels. `decode`, `resize` and `to_rgb` also run inside
tf.data and in graphs. Images are RGB and uint8.
"""

import io

import numpy as np
import tensorflow as tf
from PIL import ExifTags, Image

from plsc_tf.requirements import require

# Upper bound of pixels normalized as usual, with ImageNet's mean and deviation.
_NORMALIZED = 4.0


def decode(data: tf.Tensor) -> tf.Tensor:
    """Decodes one JPEG, PNG or GIF (its first frame) to RGB.

    The accurate inverse DCT gives the same pixels as Pillow; TensorFlow's default
    differs by one level on average.

    Args:
        data: string scalar, the bytes of the file.

    Returns:
        uint8 `[h, w, 3]`.
    """
    return tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")


def resize(images: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes to exactly `size`: bilinear with antialiasing, rounded to uint8.

    Does not keep the aspect ratio. Returns images that already have this size
    unchanged.

    Args:
        images: uint8 `[h, w, 3]` or `[n, h, w, 3]`.
        size: (height, width) in pixels.

    Returns:
        uint8 tensor of the same rank.
    """
    images = tf.convert_to_tensor(images)
    size = tuple(size)
    if images.shape[-3:-1] == size:
        return images

    def resized():
        return to_uint8(tf.image.resize(images, size, "bilinear", antialias=True))

    if images.shape[-3:-1].is_fully_defined():
        result = resized()
    else:
        same = tf.reduce_all(tf.equal(tf.shape(images)[-3:-1], size))
        result = tf.cond(same, lambda: images, resized)
    return tf.ensure_shape(result, [*images.shape[:-3], *size, 3])


def to_rgb(image: tf.Tensor) -> tf.Tensor:
    """Converts an image from a source to uint8 `[h, w, 3]`.

    Args:
        image: string scalar (an encoded image), or pixels in 0...255, uint8 or float,
            of shape `[h, w]`, `[h, w, 1]` or `[h, w, 3]`.
    """
    image = tf.convert_to_tensor(image)
    if image.dtype == tf.string:
        return decode(image)
    if image.dtype != tf.uint8:
        image = to_uint8(tf.cast(image, tf.float32))
    if image.shape.rank == 2:
        image = image[..., tf.newaxis]
    fits = image.shape.rank == 3 and image.shape[-1] in (1, 3, None)
    rule = "An image must be encoded bytes or an array [height, width(, 1 or 3)]"
    require(fits, rule, shape=image.shape)
    if image.shape[-1] == 1:
        return tf.image.grayscale_to_rgb(image)
    return image if image.shape[-1] else tf.ensure_shape(image, [None, None, 3])


def to_uint8(pixels: tf.Tensor) -> tf.Tensor:
    """Rounds float pixels to uint8; limits them to 0...255."""
    return tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)


def check_range(images: np.ndarray, name: str) -> None:
    """Rejects pixels that are already normalized, to 0...1 or around 0.

    Accepts black images, slight overshoots from interpolation, and NaN: training itself
    reports images that contain NaN.

    Args:
        images: pixels of one image, or of several images checked together.
        name: name of the images, for messages.

    Raises:
        ValueError: the pixels are not in 0...255.
    """
    if images.dtype == np.uint8 or not images.size:
        return
    low, high = images.min(), images.max()
    normalized = (low >= 0 and 0 < high <= 1) or (low < 0 and high <= _NORMALIZED)
    rule = f"{name} must have pixels in 0...255; the model normalizes them itself"
    require(not normalized, rule, pixels=f"{low:.3g}...{high:.3g}")


def orientation(content: bytes) -> int:
    """Returns an image's EXIF orientation; 1, the normal one, if it cannot be read."""
    try:
        # It is at the beginning. Pillow would keep each of a million other segments.
        exif = Image.open(io.BytesIO(content[: 1 << 17])).getexif()
        return exif.get(ExifTags.Base.Orientation, 1)
    except Exception:  # noqa: BLE001 - Pillow raises all kinds on damage
        return 1


def encode(image: np.ndarray | Image.Image, kind: str = "PNG", **options) -> bytes:
    """Encodes an image.

    Args:
        image: uint8 `[h, w, 3]` or a Pillow image.
        kind: a Pillow format, such as "PNG" or "JPEG".
        **options: arguments for `PIL.Image.Image.save`.
    """
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()
