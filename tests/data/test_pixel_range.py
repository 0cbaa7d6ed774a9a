"""Which pixels are taken for normalised ones."""

import numpy as np
import pytest

from plsc_tf.data.images import check_range

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "images",
    [
        PIXELS,
        PIXELS.astype(np.uint8) // 255,
        np.zeros((2, 4, 4, 3), np.float32),
        # What bicubic interpolation makes of edges.
        PIXELS * 1.3 - 41,
        PIXELS[:0],
        PIXELS.astype(np.int64),
    ],
)
def test_pictures_pass(images):
    check_range(images, "x")


@pytest.mark.parametrize(
    ("images", "received"),
    [
        (PIXELS / 255, r"pixels in 0\.\.\.1\."),
        (PIXELS / 127.5 - 1, r"pixels in -1\.\.\.1\."),
        ((PIXELS / 255 - 0.456) / 0.225, r"pixels in -2\.03\.\.\.2\.42\."),
    ],
)
def test_normalised_pixels_are_refused(images, received):
    with pytest.raises(ValueError, match=f"x must have pixels in 0.*{received}"):
        check_range(images, "x")
