"""PNG files of pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def encode(image: np.ndarray | Image.Image, **options) -> bytes:
    """Returns the bytes of a PNG file.

    Args:
        image: a Pillow image, or uint8 [h, w], [h, w, 1] or [h, w, 3].
        **options: of Pillow's `save`.
    """
    if not isinstance(image, Image.Image):
        image = np.asarray(image)
        grey = image.ndim == 3 and image.shape[2] == 1
        image = Image.fromarray(image.squeeze(2) if grey else image)
    stream = io.BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()
