"""Sizes are read from headers, and never from rubbish."""

import random

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
