"""Which random changes a training image may see, and how large they are."""

from __future__ import annotations

import dataclasses

# Upper bounds of the fields that are single numbers; the lower bound is 0.
_BOUNDS = {
    "flip": 1,
    "rotate": 180,
    "shift": 1,
    "zoom": 0.9,
    "shear": 1,
    "color_jitter": 1,
    "grey": 1,
    "cutout": 1,
    "brightness": 255,
    "hue": 0.5,
    "low_resolution": 1,
    "crop_in_place": 1,
    "randaugment_layers": 3,
    "randaugment_magnitude": 10,
    "rotate_probability": 1,
    "crop_probability": 1,
    "color_probability": 1,
    "cutout_probability": 1,
    "erasing": 1,
}
# Shares of an area or a side: (smallest, largest) in 0...1, not 0.
_SHARES = (
    "crop_scale",
    "low_resolution_scale",
    "crop_in_place_scale",
    "erasing_scale",
)
# Factors: (smallest, largest), not negative.
_FACTORS = ("contrast", "saturation")


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

    flip: float = 0.0
    rotate: float = 0.0
    shift: float = 0.0
    crop_scale: tuple[float, float] | None = None
    zoom: float = 0.0
    shear: float = 0.0
    color_jitter: float = 0.0
    grey: float = 0.0
    cutout: float = 0.0
    rotate_probability: float = 1.0
    crop_probability: float = 1.0
    color_probability: float = 1.0
    cutout_probability: float = 1.0
    brightness: float = 0.0
    contrast: tuple[float, float] | None = None
    saturation: tuple[float, float] | None = None
    hue: float = 0.0
    low_resolution: float = 0.0
    low_resolution_scale: tuple[float, float] = (0.2, 1.0)
    crop_in_place: float = 0.0
    crop_in_place_scale: tuple[float, float] = (0.2, 1.0)
    randaugment_layers: int = 0
    randaugment_magnitude: float = 9.0
    erasing: float = 0.0
    erasing_scale: tuple[float, float] = (0.02, 0.4)

    def __post_init__(self):
        for name, upper in _BOUNDS.items():
            value = getattr(self, name)
            if not 0 <= value <= upper:
                raise ValueError(
                    f"{name} must be in 0...{upper}. Received: {name}={value}."
                )
        if self.randaugment_layers != int(self.randaugment_layers):
            raise ValueError(
                "randaugment_layers must be a whole number. Received: "
                f"randaugment_layers={self.randaugment_layers}."
            )
        for name in _SHARES + _FACTORS:
            self._check_range(name)

    def _check_range(self, name: str):
        pair = getattr(self, name)
        if pair is None and name not in _SHARES[1:]:
            return
        try:
            low, high = pair
            good = 0 < low <= high <= 1 if name in _SHARES else 0 <= low <= high
        except (TypeError, ValueError):
            good = False
        if not good:
            rule = "0 < smallest <= largest <= 1"
            if name in _FACTORS:
                rule = "0 <= smallest <= largest"
            raise ValueError(
                f"{name} must be (smallest, largest) with {rule}. "
                f"Received: {name}={pair}."
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
