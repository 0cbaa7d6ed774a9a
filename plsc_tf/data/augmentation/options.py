"""Options that specify the random changes to training images and their ranges."""

import dataclasses
import math
from typing import Any

from plsc_tf.requirements import require


def _within(upper: float, default: float | None = 0.0, *, shown: Any = None) -> Any:
    """Returns a field for a number in 0...upper or, if None is its default, for two.

    The contact sheet of all changes shows those that have a value to be `shown`.
    """
    return dataclasses.field(default=default, metadata={"upper": upper, "shown": shown})


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The possible random changes to a training image; 0 disables a change.

    Args:
        flip: probability of mirroring left and right.
        rotate: maximum rotation in either direction, in degrees (PLSC: 10).
        shift: maximum shift in either direction, as a fraction of height and width;
            rounded to whole pixels.
        crop_scale: (smallest, largest) fraction of the area that a random resized crop
            keeps, with an aspect ratio of 3/4 to 4/3 (PLSC: 0.08, 1.0); None disables
            it.
        zoom: maximum relative change of size, up or down.
        shear: maximum shear in either direction, as a fraction of the height.
        color_jitter: brightness, contrast and saturation are multiplied by random
            factors in 1 - color_jitter ... 1 + color_jitter (PLSC: 0.2).
        grey: probability of converting the image to gray.
        cutout: maximum side of an erased square, as a fraction of the shorter side.
        color_probability: probability of a color change, if one is set.
        brightness: maximum number of levels (of 255) to add or subtract.
        contrast: (smallest, largest) factor for the contrast; None uses
            `color_jitter`.
        saturation: (smallest, largest) factor for the saturation; None uses
            `color_jitter`.
        hue: maximum rotation of the hue in either direction, as a fraction of the full
            circle.
        low_resolution: probability of shrinking the image and enlarging it again, with
            random interpolation methods (AdaFace: 0.2).
        crop_in_place: probability of blackening everything outside a random rectangle
            (AdaFace: 0.2).
        randaugment_layers: RandAugment's N, the number of successive operations.
        randaugment_magnitude: RandAugment's M, the strength of the operations in
            0...10.
        erasing: probability of filling a random rectangle with noise (random erasing:
            0.5).
    """

    flip: float = _within(1, shown=0.5)
    rotate: float = _within(180, shown=10)
    shift: float = _within(1, shown=0.1)
    crop_scale: tuple[float, float] | None = _within(1, None, shown=(0.08, 1.0))
    zoom: float = _within(0.9, shown=0.2)
    shear: float = _within(1, shown=0.2)
    color_jitter: float = _within(1, shown=0.4)
    grey: float = _within(1, shown=0.5)
    cutout: float = _within(1, shown=0.5)
    color_probability: float = _within(1, 1.0)
    brightness: float = _within(255, shown=63)
    contrast: tuple[float, float] | None = _within(math.inf, None)
    saturation: tuple[float, float] | None = _within(math.inf, None)
    hue: float = _within(0.5, shown=0.2)
    low_resolution: float = _within(1, shown=1.0)
    crop_in_place: float = _within(1, shown=1.0)
    randaugment_layers: int = _within(3, 0, shown=2)
    randaugment_magnitude: float = _within(10, 9.0)
    erasing: float = _within(1, shown=1.0)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, upper = getattr(self, field.name), field.metadata["upper"]
            rule, pair = f"a number in 0...{upper}", (value, value)
            if field.default is None:
                rule = f"None or (smallest, largest) in 0...{upper}"
                pair = (0, 0) if value is None else value
            try:
                smallest, largest = pair
                good = 0 <= smallest <= largest <= upper
            except (TypeError, ValueError):
                good = False
            if good and field.name == "randaugment_layers":
                rule, good = f"whole, {rule}", value == int(value)
            require(good, f"{field.name} must be {rule}", **{field.name: value})
