"""Checks the size of a request's images and arrays before any image is decoded.

An image of a few hundred bytes can decode to billions of pixels. The checks read only
the headers of images; the model's decoder rejects invalid files.

The size is the one that TensorFlow's decoders find, because another parser may find
another one in a damaged header: libjpeg itself reads it from a JPEG, libpng wants it
first, and all frames of a GIF are decoded (GIF89a specification).
"""

import math
import struct

import tensorflow as tf

from plsc_tf.serving.server.errors import invalid, too_large

# The decoder goes through the whole image for each scan of a progressive JPEG; encoders
# write about ten.
_MOST_SCANS = 100
# Encoders fill the blocks of a GIF, with up to 255 bytes.
_MEAN_BLOCK = 64


def check_count(count: int, options) -> None:
    """Raises RequestError if a request has no images or too many."""
    limit = options.max_request_images
    if not count:
        raise invalid("The request has no images.")
    if count > limit:
        raise too_large(
            f"A request may contain at most {limit} images. Received: {count}."
        )


def check_image(index: int, data: bytes, options) -> int:
    """Returns an encoded image's number of pixels without decoding it.

    Raises:
        RequestError: the image is too large, or is not a JPEG, PNG or GIF.
    """
    limit = int(options.max_image_mb * 1e6)
    if len(data) > limit:
        raise too_large(f"Image {index} has {len(data)} bytes; the limit is {limit}.")
    pixels, limit = num_pixels(data), int(options.max_megapixels * 1e6)
    if pixels is None:
        raise invalid(f"Image {index} is not a JPEG, PNG or GIF.")
    if pixels > limit:
        raise too_large(f"Image {index} has {pixels} pixels; the limit is {limit}.")
    return pixels


def num_pixels(data: bytes) -> int | None:
    """Returns the number of pixels in an encoded image, over all frames of a GIF.

    Args:
        data: content of an encoded image.

    Returns:
        A positive integer, or None if `data` does not begin with the header of a JPEG,
        PNG or GIF.
    """
    try:
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _gif(data) or None
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return math.prod(struct.unpack_from(">II", data, 16)) or None
        # In the data of a scan, 0xFF is never followed by this byte.
        if data.count(b"\xff\xda") > _MOST_SCANS:
            return None
        return math.prod(tf.io.extract_jpeg_shape(data).numpy()[:2].tolist()) or None
    except (IndexError, StopIteration, struct.error, tf.errors.InvalidArgumentError):
        return None


def _gif(data):
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position, pixels = 13 + _color_bytes(flags), 0
    # Going through many blocks, each of a byte, would take seconds.
    steps = iter(range(1000 + len(data) // _MEAN_BLOCK))
    while data[position] != 0x3B:
        next(steps)
        if data[position] == 0x21:
            position = _after_blocks(data, position + 2, steps)
        elif data[position] == 0x2C:
            w, h, flags = struct.unpack_from("<HHB", data, position + 5)
            pixels += max(w * h, width * height)
            # Skip the byte after the color table: the code size of the image data.
            position = _after_blocks(data, position + 11 + _color_bytes(flags), steps)
        else:
            return None
    return pixels


def _color_bytes(flags):
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(data, position, steps):
    while data[position]:
        next(steps)
        position += data[position] + 1
    return position + 1
