"""Checks the size of a request's images and arrays before any image is decoded.

An image of a few hundred bytes can decode to billions of pixels. The checks read only
the headers of images; the model's decoder rejects invalid files.
"""

from plsc_tf.data.image_limit import num_pixels, num_texts
from plsc_tf.serving.server.errors import invalid, too_large

# A byte may take as long as some pixels, since a short PNG may unpack to 1 MB.
_PIXELS_PER_BYTE = 2
# And a compressed text of a PNG, which may unpack to 8 MB.
_PIXELS_PER_TEXT = 1 << 20


def check_count(count: int, most: int) -> None:
    """Raises RequestError if a request has no images or too many."""
    if not count:
        raise invalid("The request has no images.")
    if count > most:
        raise too_large(f"A request may have at most {most} images. Received: {count}.")


def check_image(index: int, data: bytes, options) -> int:
    """Returns how many pixels an image costs in a batch, without decoding it.

    Raises:
        RequestError: the image is too large, or is not a JPEG, PNG or GIF.
    """
    limit = int(options.max_image_mb * 1e6)
    if len(data) > limit:
        raise too_large(f"Image {index} has {len(data)} bytes; the limit is {limit}.")
    pixels, limit = num_pixels(data, 0), int(options.max_megapixels * 1e6)
    if pixels is None:
        raise invalid(f"Image {index} is not a JPEG, PNG or GIF.")
    if pixels > limit:
        raise too_large(f"Image {index} has {pixels} pixels; the limit is {limit}.")
    return max(pixels, _PIXELS_PER_BYTE * len(data), _PIXELS_PER_TEXT * num_texts(data))
