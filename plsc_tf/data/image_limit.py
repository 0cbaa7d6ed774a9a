"""Limits the pixels of encoded images, before any is decoded.

An image of a few hundred bytes can decode to billions of pixels. The checks read only
the headers of images; the decoder rejects invalid files.

The size is the one that TensorFlow's decoders find, because another parser may find
another one in a damaged header: libjpeg itself reads it from a JPEG, unless its header
is one of segments without anything between them; libpng wants it first, and all frames
of a GIF are decoded (GIF89a specification). WebP, which TensorFlow decodes from 2.21
on, is refused, because a model could not embed its frames.
"""

import struct
import zlib

import tensorflow as tf

from plsc_tf.requirements import require
from plsc_tf.storage import files

MAX_MEGAPIXELS = 16.0
# Most bytes of an image's file, which is read as a whole: 16 megapixels of four numbers
# of 16 bits take 128 MB. A sparse file that takes no disk can have gigabytes.
MOST_BYTES = 1 << 27
# The decoder goes through the whole image for each scan of a progressive JPEG, of which
# encoders write about ten. A scan takes at least ten bytes, so there is no need to
# count them if pixels (of whole blocks of 8 x 8) times bytes is at most the second
# number.
_MOST_SCANS, _FEW = 100, 1 << 34
# Arithmetic coding, which no encoder uses, takes four times as long. Its markers may
# also lie in other data.
_ARITHMETIC = [bytes((0xFF, kind)) for kind in (*range(0xC9, 0xCC), *range(0xCD, 0xD0))]
# Bytes of a PNG that may unpack to any size.
_SHORT = 1 << 10
# libpng unpacks each compressed text and color profile of a PNG, to up to 8 MB, even
# profiles after the first, which it ignores.
_TEXTS, _MOST_TEXTS = (b"zTXt", b"iTXt", b"iCCP"), 10
# Encoders fill the blocks of a GIF, with up to 255 bytes.
_MEAN_BLOCK = 64
# Markers of tables, comments and data of applications, and of frames.
_SEGMENTS = (0xFFDB, 0xFFC4, 0xFFDD, 0xFFFE, *range(0xFFE0, 0xFFF0))
_FRAMES = (0xFFC0, 0xFFC1, 0xFFC2)
# Most programs write three segments before the frame.
_PLAIN_SEGMENTS = 6
_CUT_OFF = IndexError, StopIteration, struct.error


def read_image(path: str) -> bytes:
    """Returns the content of an image's file; ValueError if it is too large."""
    return files.read_limited(path, MOST_BYTES)


def checked(
    images: tf.Tensor,
    max_megapixels: float = MAX_MEGAPIXELS,
    sizes: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the images, or fails if an encoded one is too large.

    Runs inside tf.data, on a whole block rather than on each image, to save time.

    Args:
        images: strings of any shape, encoded images; or pixels, which pass.
        max_megapixels: largest number of pixels of an image, in millions.
        sizes: the images' `jpeg_sizes`, if they are known.
    """
    if images.dtype != tf.string:
        return images

    def check(images):
        for image in images:
            check_size(image, max_megapixels)
        # TensorFlow would remove a check whose result has no use.
        return images

    def in_python():
        return tf.numpy_function(check, [flat], tf.string, stateful=False)

    flat = tf.reshape(images, [-1])
    small = tf.constant(False)
    if not tf.executing_eagerly():
        sizes = jpeg_sizes(flat) if sizes is None else sizes
        pixels = tf.reduce_prod(tf.cast(sizes, tf.int64), axis=1)
        decoded = tf.reduce_prod(tf.cast(sizes + 7, tf.int64), axis=1)
        few_scans = decoded * tf.cast(tf.strings.length(flat), tf.int64) <= _FEW
        fits = (pixels > 0) & (pixels <= int(max_megapixels * 1e6))
        small = tf.reduce_all(fits & few_scans)
    passed = tf.cond(small, lambda: flat, in_python)
    return tf.ensure_shape(tf.reshape(passed, tf.shape(images)), images.shape)


def check_size(image: bytes, max_megapixels: float = MAX_MEGAPIXELS) -> None:
    """Raises ValueError if an encoded image is too large, or has no size."""
    pixels = num_pixels(image, max_megapixels * 1e6)
    rule = f"its {len(image)} bytes are no JPEG, PNG or GIF of at most {_MOST_SCANS} "
    rule += f"scans and {_MOST_TEXTS} compressed texts"
    require(pixels is not None, rule)
    check_pixels(pixels, max_megapixels)


def check_pixels(pixels: int, max_megapixels: float) -> None:
    """Raises ValueError if an image has too many pixels."""
    megapixels = pixels / 1e6
    rule = f"it has {megapixels:.2f} megapixels; max_megapixels is {max_megapixels:g}"
    require(megapixels <= max_megapixels, rule)


def num_pixels(data: bytes, most: float = MAX_MEGAPIXELS * 1e6) -> int | None:
    """Returns the number of pixels in an encoded image, over all frames of a GIF.

    Args:
        data: content of an encoded image.
        most: PNGs of at most this many pixels are unpacked to check that their size is
            true, which can take a second; forged sizes beyond it could take longer.

    Returns:
        A positive integer, or None if `data` does not begin with the header of a JPEG,
        PNG or GIF.
    """
    try:
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _gif(data) or None
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            pixels = _area(*struct.unpack_from(">II", data, 16))
            fits = len(data) <= _SHORT or pixels > most or _unpacks(data, 16 * pixels)
            return (fits and num_texts(data) <= _MOST_TEXTS and pixels) or None
        height, width = _jpeg_size(data)
        pixels = _area(width, height)
        # In the data of a scan, 0xFF is never followed by these bytes.
        scans = data.count(b"\xff\xda")
        if 8 * scans > _MOST_SCANS:  # the search for markers takes long
            scans *= 8 if any(marker in data for marker in _ARITHMETIC) else 1
        return pixels or None if scans <= _MOST_SCANS else None
    except (*_CUT_OFF, zlib.error, tf.errors.InvalidArgumentError):
        return None


def num_texts(image: bytes) -> int:
    """Returns the number of compressed texts and color profiles, if it is a PNG."""
    return sum(map(image.count, _TEXTS)) if image.startswith(b"\x89PNG") else 0


def jpeg_sizes(images: tf.Tensor) -> tf.Tensor:
    """Returns (height, width) of plain JPEGs, and zeros for all other images.

    In a plain JPEG, only whole segments lie before the frame, so that every decoder
    finds the same size. It takes a microsecond per image, and not Python's lock, which
    would limit the rate of a pipeline on many cores.

    Args:
        images: string `[n]`, encoded images.

    Returns:
        int32 `[n, 2]`.
    """
    lengths = tf.strings.length(images)
    four = tf.fill(tf.shape(lengths), 4)

    def two_numbers(place):
        part = tf.strings.substr(images, tf.minimum(place, lengths), four)
        numbers = tf.io.decode_raw(part, tf.uint16, little_endian=False, fixed_length=4)
        return tf.cast(numbers, tf.int32)

    def is_in(marker, kinds):
        return tf.reduce_any(marker[:, tf.newaxis] == kinds, axis=1)

    place = tf.fill(tf.shape(lengths), 2)
    for _ in range(_PLAIN_SEGMENTS):
        marker, length = tf.unstack(two_numbers(place), axis=1)
        plain = is_in(marker, _SEGMENTS) & (length > 1)
        place += tf.where(plain, length + 2, 0)
    begins = tf.strings.substr(images, 0, 2) == b"\xff\xd8"
    plain = begins & is_in(two_numbers(place)[:, 0], _FRAMES)
    # The sides follow the marker, a length and the number of bits.
    return tf.where(plain[:, tf.newaxis], two_numbers(place + 5), 0)


def _jpeg_size(data):
    """Returns (height, width); of a plain JPEG in microseconds, as `jpeg_sizes`."""
    # What does not begin as a JPEG is cut off.
    place = 2 if data.startswith(b"\xff\xd8") else len(data)
    for _ in range(_PLAIN_SEGMENTS + 1):
        marker, length, bits, *size, planes = struct.unpack_from(">HHBHHB", data, place)
        if marker in _FRAMES and (length, bits) == (8 + 3 * planes, 8):
            return size
        if marker not in _SEGMENTS or length < 2:  # noqa: PLR2004 - its own bytes
            break
        place += length + 2
    return tf.io.extract_jpeg_shape(data).numpy()[:2].tolist()


def _unpacks(data, most):
    """Returns whether a PNG's pixels unpack to a size that an image can need.

    libpng also unpacks what follows them, up to the end of the compressed data.
    """
    unpack, position = zlib.decompressobj(), 8
    while position + 8 <= len(data) and not unpack.eof:
        length, kind = struct.unpack_from(">I4s", data, position)
        chunk = data[position + 8 : position + 8 + length] if kind == b"IDAT" else b""
        position += length + 12
        while chunk and most >= 0 and not unpack.eof:
            most -= len(unpack.decompress(chunk, 1 << 20))
            chunk = unpack.unconsumed_tail
    return most >= 0


def _gif(data):
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position, pixels = 13 + _color_bytes(flags), 0
    # Going through many blocks, each of a byte, would take seconds.
    steps = iter(range(200 + len(data) // _MEAN_BLOCK))
    while data[position] != 0x3B:
        next(steps)
        if data[position] == 0x21:
            position = _after_blocks(data, position + 2, steps)
        elif data[position] == 0x2C:
            w, h, flags = struct.unpack_from("<HHB", data, position + 5)
            pixels += max(_area(w, h), _area(width, height))
            # Skip the byte after the color table: the code size of the image data.
            position = _after_blocks(data, position + 11 + _color_bytes(flags), steps)
        else:
            return None
    return pixels


def _area(width, height):
    # Resizing changes the height first: a row of pixels becomes as many rows as others.
    # And in a narrow image, a row takes as long as ten pixels.
    wide = max(width, min(10, height // 1000))
    return wide * max(height, width // 100) if width and height else 0


def _color_bytes(flags):
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(data, position, steps):
    while data[position]:
        next(steps)
        position += data[position] + 1
    return position + 1
