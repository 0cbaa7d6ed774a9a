"""Which random changes a training image may see, and how large they are."""

from __future__ import annotations

import dataclasses
from typing import Any


def _within(upper: float, default: float = 0.0) -> Any:
    """A field of one number in 0...upper."""
    return dataclasses.field(default=default, metadata={"upper": upper})


def _share(default: tuple[float, float] | None) -> Any:
    """A field (smallest, largest) of shares of an area or a side."""
    rule = "0 < smallest <= largest <= 1"
    return dataclasses.field(default=default, metadata={"pair": rule})


def _factor() -> Any:
    """A field (smallest, largest) of factors, or None."""
    rule = "0 <= smallest <= largest"
    return dataclasses.field(default=None, metadata={"pair": rule})


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What may happen to a training image; every field's 0 switches it off.

    Args:
        flip: probability of mirroring left and right.
        rotate: largest rotation either way, in degrees (PLSC: 10).
        shift: largest shift either way, as a share of height and width; whole
            pixels.
        crop_scale: (smallest, largest) share of the area that a random resized crop
            keeps, with an aspect ratio of 3/4 to 4/3 (PLSC: 0.08, 1.0); None for no
            crop.
        zoom: largest change of size, larger or smaller, as a share.
        shear: largest shear either way, as a share of the height.
        color_jitter: brightness, contrast and saturation are multiplied by factors
            in 1 - color_jitter ... 1 + color_jitter (PLSC: 0.2).
        grey: probability of a grey image.
        cutout: largest side of an erased square, as a share of the shorter side.
        rotate_probability: of a rotation, where `rotate` is set.
        crop_probability: of a random resized crop, where `crop_scale` is set.
        color_probability: of a change of colors, where one is set.
        cutout_probability: of an erased square, where `cutout` is set.
        brightness: largest number of levels (of 255) added or taken away.
        contrast: (smallest, largest) factor of the contrast instead of the one of
            `color_jitter`; None for that one.
        saturation: the same for the saturation.
        hue: largest turn of the hue either way, as a share of the full circle.
        low_resolution: probability of an image made smaller and large again, by
            random interpolations (AdaFace: 0.2).
        low_resolution_scale: (smallest, largest) share of the sides in between.
        crop_in_place: probability that all but a random rectangle is black
            (AdaFace: 0.2).
        crop_in_place_scale: (smallest, largest) share of the area that is kept.
        randaugment_layers: RandAugment's N, operations one after the other.
        randaugment_magnitude: RandAugment's M, their strength in 0...10.
        erasing: probability that a rectangle becomes noise (random erasing: 0.5).
        erasing_scale: (smallest, largest) share of the area that it has.
    """

    flip: float = _within(1)
    rotate: float = _within(180)
    shift: float = _within(1)
    crop_scale: tuple[float, float] | None = _share(None)
    zoom: float = _within(0.9)
    shear: float = _within(1)
    color_jitter: float = _within(1)
    grey: float = _within(1)
    cutout: float = _within(1)
    rotate_probability: float = _within(1, 1.0)
    crop_probability: float = _within(1, 1.0)
    color_probability: float = _within(1, 1.0)
    cutout_probability: float = _within(1, 1.0)
    brightness: float = _within(255)
    contrast: tuple[float, float] | None = _factor()
    saturation: tuple[float, float] | None = _factor()
    hue: float = _within(0.5)
    low_resolution: float = _within(1)
    low_resolution_scale: tuple[float, float] = _share((0.2, 1.0))
    crop_in_place: float = _within(1)
    crop_in_place_scale: tuple[float, float] = _share((0.2, 1.0))
    randaugment_layers: int = _within(3, 0)
    randaugment_magnitude: float = _within(10, 9.0)
    erasing: float = _within(1)
    erasing_scale: tuple[float, float] = _share((0.02, 0.4))

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if rule := field.metadata.get("pair"):
                rule = f"(smallest, largest) with {rule}"
                good = value is None and field.default is None or _is_pair(value, rule)
            else:
                upper = field.metadata["upper"]
                rule, good = f"in 0...{upper}", 0 <= value <= upper
            if not good:
                received = f"Received: {field.name}={value}."
                raise ValueError(f"{field.name} must be {rule}. {received}")
        if self.randaugment_layers != int(self.randaugment_layers):
            raise ValueError(
                "randaugment_layers must be a whole number. Received: "
                f"randaugment_layers={self.randaugment_layers}."
            )

    @classmethod
    def named(cls, name: str | Augmentation | None) -> Augmentation | None:
        """Returns the augmentation of this name: "face" (mirroring) or "none"."""
        if name is None or isinstance(name, Augmentation):
            return name
        if name == "face":
            return cls(flip=0.5)
        if name == "none":
            return None
        raise ValueError(
            "augmentation must be 'face', 'none' or an Augmentation. "
            f"Received: augmentation={name!r}."
        )

    @property
    def warps(self) -> bool:
        """Whether pixels land between pixels, so that the image is interpolated."""
        return bool(
            (self.rotate and self.rotate_probability)
            or (self.crop_scale and self.crop_probability)
            or self.zoom
            or self.shear
        )

    @property
    def recolors(self) -> bool:
        """Whether brightness, contrast, saturation or hue may change."""
        changes = (self.color_jitter, self.brightness, self.hue)
        ranges = (self.contrast, self.saturation)
        return bool(self.color_probability and (any(changes) or any(ranges)))


def _is_pair(value, rule):
    """Whether a value is (smallest, largest), shares if the rule ends with 1."""
    try:
        low, high = value
        return 0 < low <= high <= 1 if rule.endswith("1") else 0 <= low <= high
    except (TypeError, ValueError):
        return False
