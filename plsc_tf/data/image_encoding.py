"""Images as the bytes of a file."""

import io

import numpy as np
from PIL import Image


def encode(image: np.ndarray | Image.Image, kind: str = "PNG", **options) -> bytes:
    """Encodes uint8 `[h, w, 3]` or a Pillow image.

    Args:
        image: the image.
        kind: a format of Pillow, such as "PNG" or "JPEG".
        **options: of `PIL.Image.Image.save`.
    """
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()
