"""Sizes are read from headers, and never from rubbish."""

import io
import random

import pytest
from PIL import Image

from plsc_tf.serving.server.limits import num_pixels


def written(file_format):
    file = io.BytesIO()
    Image.new("RGB", (13, 7), "teal").save(file, file_format)
    return file.getvalue()


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "GIF"])
def test_sizes(file_format):
    assert num_pixels(written(file_format)) == 13 * 7


def test_all_frames_of_a_gif_count():
    frames = [Image.new("RGB", (13, 7), (n, 0, 0)) for n in (0, 90, 200)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert num_pixels(file.getvalue()) == 3 * 13 * 7


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xd8\xff", b"BM" + bytes(60), b"\x89PNG\r\n\x1a\n", b"GIF89a", b"text"],
)
def test_no_image(data):
    assert num_pixels(data) is None


def test_no_rubbish_raises_or_takes_for_ever():
    rng = random.Random(0)
    goods = [written(name) for name in ("JPEG", "PNG", "GIF")]
    for _ in range(1000):
        data = bytearray(rng.choice(goods))
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        pixels = num_pixels(bytes(data[: rng.randrange(len(data) + 1)]))
        assert pixels is None or pixels > 0
