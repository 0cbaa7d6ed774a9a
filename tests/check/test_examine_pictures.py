"""One picture: each kind of fault, and fingerprints that hold what they promise."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from plsc_tf.data.checks import survey
from plsc_tf.data.checks.listings import Item
from plsc_tf.data.checks.survey import difference_hash
from plsc_tf.data.images import encode
from tests.check.conftest import pixels

RGB = pixels(1)
GREY = RGB[..., 0]
RGBA = np.dstack([RGB, np.full(GREY.shape, 90, np.uint8)])


def _exif(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def _frames(kind):
    first, second = Image.fromarray(RGB), Image.fromarray(pixels(2))
    return encode(first, kind, save_all=True, append_images=[second])


def examine(content):
    return survey.examine(Item(content=content))


def _names(content):
    return [kind for kind, _ in examine(content).faults]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (encode(RGB), []),
        (encode(RGB, "JPEG"), []),
        (encode(RGB, "JPEG", progressive=True), []),
        (encode(RGB, "GIF"), []),
        (encode(RGB, "JPEG", exif=_exif(1)), []),
        (encode(RGB, "JPEG", exif=_exif(6)), ["rotated"]),
        (encode(Image.fromarray(RGB).convert("CMYK"), "JPEG"), ["cmyk"]),
        (encode(GREY), ["grey"]),
        (encode(GREY, "JPEG"), ["grey"]),
        (encode(RGBA), ["alpha"]),
        (encode(GREY.astype(np.uint16) * 257), ["grey", "sixteen_bit"]),
        (_frames("PNG"), ["animated"]),
        (encode(np.full((8, 8, 3), 7, np.uint8)), ["blank"]),
        (b"", ["empty"]),
        (b"<html>not found</html>", ["not_an_image"]),
        (encode(RGB, "TIFF"), ["unsupported_format"]),
        # Pillow would make 10 GB of one of 128 MB that takes no disk.
        (b"MM\0*" + bytes(99), ["unsupported_format"]),
        (encode(RGB, "JPEG")[:-40], ["damaged_image"]),
        (encode(RGB)[:-30], ["damaged_image"]),
        (encode(RGB, "JPEG")[:20], ["damaged_image"]),
        (encode(RGB)[:20], ["damaged_image"]),
        (encode(Image.new("1", (4096, 4097))), ["too_large"]),
    ],
)
def test_every_kind_of_picture_is_known(content, expected):
    assert _names(content) == expected


@pytest.mark.parametrize(
    "content", [_frames("GIF"), encode(RGB, "BMP"), encode(RGB, "WEBP")]
)
def test_what_training_does_not_decode_is_an_error(content):
    assert _names(content)[-1] == "unsupported_format"


def test_sixteen_bit_colours_are_known():
    # Pillow cannot write them: 1 x 1 pixel of three 16-bit values, by hand.
    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" + struct.pack(">3H", 100, 20_000, 65_535))
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows)
    assert _names(content + chunk(b"IEND", b"")) == ["sixteen_bit"]


def test_fingerprints_tell_bytes_from_pixels():
    one, other = encode(RGB, compress_level=1), encode(RGB, compress_level=9)
    assert one != other
    first, second = examine(one), examine(other)
    assert first.byte_hash != second.byte_hash
    assert first.pixel_hash == second.pixel_hash == examine(RGB).pixel_hash
    grey = examine(GREY[..., np.newaxis])
    assert grey.pixel_hash == examine(np.repeat(GREY[..., np.newaxis], 3, 2)).pixel_hash
    assert grey.pixel_hash != examine(GREY.T.copy()).pixel_hash


def test_the_difference_hash_is_rising_brightness():
    # Brightness rises in the upper half and falls in the lower one.
    ramp = np.linspace(0, 250, 90)
    grid = np.concatenate([np.tile(ramp, (40, 1)), np.tile(ramp[::-1], (40, 1))])
    picture = np.repeat(grid[..., np.newaxis], 3, axis=2).astype(np.uint8)
    assert difference_hash(picture) == 2**32 - 1
    small = np.asarray(Image.fromarray(picture).resize((45, 40)))
    decoded = np.asarray(Image.open(io.BytesIO(encode(small, "JPEG", quality=60))))
    assert difference_hash(decoded) == 2**32 - 1
