"""Sizes are read from headers as Pillow reads them, and from rubbish never."""

import io
import random

import pytest
from PIL import Image

from plsc_tf.serving.server.limits import num_pixels


def written(file_format, size=(13, 7), **options):
    file = io.BytesIO()
    Image.new("RGB", size, "teal").save(file, file_format, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("file_format", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"exif": b"Exif\0\0" + bytes(3000), "comment": b"\xff\xc0 no frame"}),
        ("PNG", {}),
        ("GIF", {}),
    ],
)
def test_sizes(file_format, options):
    assert num_pixels(written(file_format, **options)) == 13 * 7


def test_all_frames_of_a_gif_count():
    frames = [Image.new("RGB", (13, 7), (n, 0, 0)) for n in (0, 90, 200)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert num_pixels(file.getvalue()) == 3 * 13 * 7


def test_fill_bytes_before_a_marker():
    # T.81 B.1.1.2: any marker may be preceded by any number of bytes FF.
    data = written("JPEG")
    place = data.index(b"\xff\xc0")
    assert num_pixels(data[:place] + b"\xff" * 5 + data[place:]) == 13 * 7


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xd8\xff", b"BM" + bytes(60), b"\x89PNG\r\n\x1a\n", b"GIF89a", b"text"],
)
def test_no_image(data):
    assert num_pixels(data) is None


def test_no_rubbish_raises_or_takes_for_ever():
    rng = random.Random(0)
    goods = [written(name) for name in ("JPEG", "PNG", "GIF")]
    for _ in range(3000):
        data = bytearray(rng.choice(goods))
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        pixels = num_pixels(bytes(data[: rng.randrange(len(data) + 1)]))
        assert pixels is None or pixels > 0
