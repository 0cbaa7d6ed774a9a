"""Decoding equals Pillow; resizing averages and rounds."""

import io

import numpy as np
import pytest
from PIL import Image

from plsc_tf.data import images

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 16, 3), np.uint8)


EXIF = Image.Exif()
EXIF[0x0112] = 6  # turn by 90 degrees to show it, which neither does


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        *(("JPEG", mode, {}) for mode in ("RGB", "L")),
        *(("PNG", mode, {}) for mode in ("RGB", "L", "1", "P", "RGBA", "LA")),
        ("GIF", "RGB", {}),
        ("JPEG", "RGB", {"exif": EXIF}),
    ],
)
def test_decode_equals_pillow(kind, mode, options):
    image = Image.fromarray(PIXELS).convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(PIXELS[..., 0]))
    data = images.encode(image, kind, **options)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(images.decode(data), expected)


def test_sixteen_bits_keep_their_upper_eight():
    deep = PIXELS[..., 0].astype(np.uint16) * 256 + 200
    decoded = images.decode(images.encode(Image.fromarray(deep)))
    np.testing.assert_array_equal(decoded, PIXELS[..., :1].repeat(3, -1))


def test_cmyk_jpeg_becomes_rgb_as_pillow_has_it():
    smooth = np.indices((32, 32)).sum(0)[..., np.newaxis] * np.array([3, 2, 1])
    cmyk = Image.fromarray(smooth.astype(np.uint8)).convert("CMYK")
    data = images.encode(cmyk, "JPEG", quality=95)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    assert np.abs(images.decode(data).numpy() - expected).max() <= 2


def test_resize_averages_and_rounds():
    # Every output pixel of an antialiased halving by an area of equal pixels is it.
    small = np.array([[[10, 20, 30], [250, 0, 7]]], np.uint8)
    halved = images.resize(small.repeat(16, 0).repeat(16, 1), (8, 16)).numpy()
    assert halved.dtype == np.uint8 and halved.shape == (8, 16, 3)
    expected = np.broadcast_to(small[0, 0], (8, 7, 3))
    np.testing.assert_array_equal(halved[:, :7], expected)
    # Averages are rounded, not cut: the mean of 0 and 255 is 127.5.
    checker = np.indices((8, 8)).sum(0)[..., np.newaxis].repeat(3, -1) % 2 * 255
    gray = images.resize(checker.astype(np.uint8), (1, 1)).numpy()
    assert gray[0, 0, 0] in (127, 128)


def test_resize_keeps_what_has_the_size_and_takes_batches():
    np.testing.assert_array_equal(images.resize(PIXELS, (20, 16)), PIXELS)
    both = images.resize(np.stack([PIXELS, PIXELS]), (7, 9))
    assert both.shape == (2, 7, 9, 3)
    np.testing.assert_array_equal(both[1], images.resize(PIXELS, (7, 9)))


FLOATS = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "pixels",
    [
        FLOATS,
        FLOATS.astype(np.uint8) // 255,
        np.zeros((2, 4, 4, 3), np.float32),
        # What bicubic interpolation makes of edges.
        FLOATS * 1.3 - 41,
        FLOATS[:0],
        FLOATS.astype(np.int64),
    ],
)
def test_pixels_in_0_to_255_pass(pixels):
    images.check_range(pixels, "x")
