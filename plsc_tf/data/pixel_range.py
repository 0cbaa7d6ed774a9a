"""Whether pixels are in 0...255, before anything is trained on black."""

from __future__ import annotations

import numpy as np

# What a usual normalisation reaches: (x - mean) / deviation with ImageNet's figures.
_NORMALISED = 4.0


def check_range(images: np.ndarray, name: str) -> None:
    """Refuses pixels that were normalized already, in 0...1 or about 0.

    Black images pass, and what an interpolation has beyond 0...255. So does NaN, of
    which a training says by itself in which image it is.

    Args:
        images: pixels of one image or of several, which are judged together.
        name: of what they are, for messages.

    Raises:
        ValueError: the pixels are not in 0...255.
    """
    if images.dtype == np.uint8 or not images.size:
        return
    low, high = images.min(), images.max()
    in_unit = low >= 0 and 0 < high <= 1
    about_zero = low < 0 and high <= _NORMALISED
    if in_unit or about_zero:
        raise ValueError(
            f"{name} must be pixels in 0...255; the model normalises them itself. "
            f"Received: pixels in {low:.3g}...{high:.3g}."
        )
