"""Sizes are read from headers, and never from rubbish."""

import random

import pytest
import tensorflow as tf
from PIL import Image

from plsc_tf.data.images import encode
from plsc_tf.serving.server.limits import num_pixels


def test_no_rubbish_raises_or_takes_for_ever():
    rng = random.Random(0)
    image = Image.new("RGB", (13, 7), "teal")
    goods = [encode(image, name) for name in ("JPEG", "PNG", "GIF")]
    for _ in range(1000):
        data = bytearray(rng.choice(goods))
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        pixels = num_pixels(bytes(data[: rng.randrange(len(data) + 1)]))
        assert pixels is None or pixels > 0


def _decoded_size(data):
    try:
        return int(tf.reduce_prod(tf.shape(tf.io.decode_jpeg(data, channels=1))))
    except tf.errors.InvalidArgumentError:
        return 0


@pytest.mark.parametrize("extra", (b"\xff\0", b"\xff\0\xff", b"\0\xff", b"\0\0"))
def test_bytes_before_a_segment_do_not_hide_its_size(extra):
    # If they did, 4 KB that are judged as a thumbnail would take 0.5 GB in the decoder.
    sizes = [(8, 8), (640, 80)]
    small, large = (encode(Image.new("L", size), "JPEG") for size in sizes)
    at, large_at = small.index(b"\xff\xc0"), large.index(b"\xff\xc0")
    for data in (
        large[:large_at] + extra + large[large_at:],
        large[:large_at] + extra + small[at : at + 2] + large[large_at:],
        large[:large_at] + b"\xff\x00" + small[at : at + 19] + large[large_at:],
    ):
        assert (num_pixels(data) or 0) >= _decoded_size(data)


@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_image_is_decoded_larger_than_it_was_judged(count):
    rng, decoded = random.Random(1), 0
    image = Image.new("RGB", (23, 17), "teal")
    goods = [encode(image, name) for name in ("JPEG", "PNG", "GIF")]
    goods.append(encode(image, "JPEG", progressive=True))
    for _ in range(count):
        data = bytearray(rng.choice(goods))
        for _ in range(rng.randrange(1, 4)):
            place, some = rng.randrange(min(len(data), 200)), rng.randbytes(2)
            end = place + rng.choice((0, 1, len(some)))
            data[place:end] = rng.choice((some, b"\xff" + some, b"\xff\x00"))
        judged = num_pixels(bytes(data)) or 0
        size = _decoded_size(bytes(data)) if judged < 10**6 else 0
        assert size <= judged
        decoded += bool(size)
    assert decoded > count / 20


def test_the_scans_of_a_jpeg_are_limited():
    # Each scan of ten bytes costs the decoder a pass over all pixels.
    data = encode(Image.new("L", (8, 8)), "JPEG", progressive=True)
    assert num_pixels(data) == 64
    assert num_pixels(data + 100 * b"\xff\xda") is None
