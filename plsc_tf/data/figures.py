"""Draws synthetic faces: one figure per identity, in any pose and light.

An identity is a list of ovals; an image adds a pose, an expression, light, a background
and noise. Pixels are computed with +, -, *, / and square roots only, which every
machine rounds alike, so an image is the same on every machine.
"""

import colorsys
import math
import random

import numpy as np

# The ovals of each style: x, y, wide, high, square, taper, tilt (see `Canvas.oval`).
# Hair and the places of ears are in units of the head's size; the other lengths are in
# units of the ear's or nose's own size.
_HAIR = (
    [],
    [(0, -0.75, 0.92, 0.42, 0.2)],
    [(0, -0.72, 1.02, 0.40, 0.9)],
    [(0.5, -0.75, 0.66, 0.36, 0, 0, 0.5)],
    [(0, -0.95, 0.22, 0.42)],
    [(0.9, -0.45, 0.28, 0.3), (0.5, -0.85, 0.34, 0.3), (0, -0.98, 0.36, 0.3)],
)
_EARS = (
    (1, 0, 0.6, 1),
    (0.72, -0.78, 1.2, 1.2),
    (0.66, -0.9, 0.8, 1.8, 0, -0.5, 0.4),
    (0.45, -1.25, 0.6, 2),
)
_NOSES = (0, 1, 1, 0.8), (0, 1, 0.7, 1.3, 0, -0.5), (0, 1, 0.3, 1.3)
# Colors: ranges of hue, saturation and value.
_HUMAN = (0.03, 0.09), (0.25, 0.65), (0.45, 0.98)
_RED = (0.93, 1.05), (0.5, 0.9), (0.35, 0.85)
_ANY = (0, 1), (0.15, 0.8), (0.2, 0.95)
_DARK, _WHITE = 0.1, 0.97


def identity(seed: int, label: int) -> list[tuple]:
    """Returns the figure of a class, which depends only on (seed, label).

    Returns:
        Ovals from back to front: the layer, which says how the oval moves, its color,
        and its shape as in `Canvas.oval`, with lengths in half heads.
    """
    dice, parts = Dice(f"{seed} {label}"), []
    within, color = dice.uniform, dice.color

    def add(layer, color, *shape):
        parts.append((layer, color, *shape))

    # Half of the figures have human skin colors, the other half toy colors; a third of
    # those with hair have it long, four fifths have ears, and so on.
    skin, hair = color(dice.choice((_HUMAN, _ANY))), color(_ANY)
    wide, high = within(0.70, 1.0), within(0.82, 1.08)
    style, size = dice.choice(_HAIR), within(0.17, 0.32)
    if style and within(0, 3) < 1:  # long hair, behind the head
        add("ears", hair * 0.9, 0, 0.3, wide + 0.17, high + 0.3, 0.5)
    if within(0, 5) < 4:  # outer and inner ears
        ear = dice.choice(_EARS)
        add("ears", skin * 0.92, *_sized(ear, wide, high, size, size))
        add("ears", skin * 0.75, *_sized(ear, wide, high, size * 0.6, size * 0.6))
    shape = within(0, 0.8), within(-0.10, 0.22)
    add("head", skin * 0.82, 0, 0, wide, high, *shape)
    add("head", skin, 0, -0.02, wide - 0.06, high - 0.06, *shape)
    if within(0, 2) < 1:  # cheeks
        add("face", color(_RED) / 2 + skin / 2, wide * 0.58, 0.3, 0.17, 0.13)
    if within(0, 2) < 1:  # a beard
        add("face", hair * 0.85, 0, high - 0.37, wide * 0.6, within(0.22, 0.35), 0.3)

    x, y = within(0.24, 0.46), within(-0.2, 0.1)
    a, b = within(0.12, 0.22), within(0.10, 0.22)
    if within(0, 3) < 1:  # a patch around one eye
        add("face", color(_ANY), -x, y, a + 0.12, a + 0.18)
    if within(0, 5) < 2:  # glasses: bridge, frames and lenses
        square = dice.choice((0, 0.9))
        add("face", _DARK, 0, y, x, 0.04)
        add("face", _DARK, x, y, a + 0.1, a + 0.1, square)
        add("face", skin / 2 + 0.5, x, y, a + 0.05, a + 0.05, square)
    add("eyes", _DARK, x, y, a + 0.025, b + 0.025)
    add("eyes", _WHITE, x, y, a, b)
    iris = min(a, b) * within(0.45, 0.75)
    add("gaze", color(_ANY), x, y, iris, iris)
    add("gaze", _DARK, x, y, iris / 2, iris / 2)
    add("glint", _WHITE, x, y, iris / 4, iris / 4)
    brow = y - b - within(0.05, 0.16), a, within(0.03, 0.08)
    add("face", hair * 0.6, x, *brow, 0, 0, within(-0.4, 0.4))

    y, size = within(0.14, 0.30), within(0.07, 0.17)
    add("face", skin * 0.68, *_sized(dice.choice(_NOSES), 0, y, size, size))
    y, half, lips = within(0.46, 0.66), within(0.07, 0.18), color(_RED)
    add("mouth", lips * 0.4, 0, y + 0.05, half * 1.6, 0.13)
    add("face", lips, half, y, half + 0.02, 0.05, 0, 0, within(-0.6, 0.3))
    for oval in style:
        add("hair", hair, *_sized(oval, wide, high, wide, high))
    return parts


def _sized(oval, *factors: float) -> list[float]:
    return [a * b for a, b in zip(oval, (*factors, 1, 1, 1), strict=False)]


def draw(seed: int, label: int, index: int, size: tuple[int, int]) -> np.ndarray:
    """Draws image number `index` of a class.

    Args:
        seed: random seed of the data set.
        label: the class.
        index: number of the image within the class.
        size: (height, width) in pixels.

    Returns:
        uint8 `[height, width, 3]`, RGB.
    """
    dice = Dice(f"{seed} {label} {index}")
    canvas = Canvas(size, dice)
    canvas.oval(dice.color(_ANY), 0, 2, 1.25, 1, 0.3)
    turn, nod = dice.uniform(-0.16, 0.16), dice.uniform(-0.1, 0.1)
    right, down = turn + dice.uniform(-0.04, 0.04), nod + dice.uniform(-0.03, 0.03)
    # How far each layer moves to the right and down, and the change of heights.
    moves = {
        "ears": (-turn / 3, 0, 1),
        "head": (0, 0, 1),
        "face": (turn, nod, 1),
        "eyes": (turn, nod, dice.uniform(0.7, 1.1)),
        "gaze": (right, down, 1),
        "glint": (right - 0.03, down - 0.03, 1),
        "mouth": (turn, nod, max(0.1, dice.uniform(-1, 1))),
        "hair": (turn / 2, nod / 2, 1),
    }
    for layer, *oval in identity(seed, label):
        canvas.move = moves[layer]
        canvas.oval(*oval)
    return canvas.finish(dice)


class Dice(random.Random):
    """Random numbers and colors, the same on every machine."""

    def color(self, ranges) -> np.ndarray:
        """Returns a random color, RGB in 0...1, `[3, 1, 1]`; the ranges are in HSV."""
        hsv = (self.uniform(*limits) for limits in ranges)
        return np.float32(colorsys.hsv_to_rgb(*hsv)).reshape(3, 1, 1)


class Canvas:
    """An image with head coordinates: x to the right, y down, head radius about 1."""

    def __init__(self, size: tuple[int, int], dice: Dice):
        half, slope = min(size) / 2, dice.uniform(-0.44, 0.44)
        # The head's radius, center and horizontal axis in pixels.
        self._scale = half / dice.uniform(1.25, 1.75)
        x = size[1] / 2 + dice.uniform(-0.16, 0.16) * half
        y = size[0] / 2 + dice.uniform(-0.14, 0.18) * half
        cos = self._scale / math.sqrt(1 + slope * slope)
        self._pose = cos, cos * slope, x, y
        rows, columns = np.ogrid[: size[0], : size[1]]
        part = cos / self._scale / self._scale
        right, down = (np.float32(n) * part for n in (columns - x, rows - y))
        self._x, self._y = right + slope * down, down - slope * right
        # Planes `[3, h, w]`, because numpy paints them much faster than `[h, w, 3]`.
        first, second = dice.color(_ANY), dice.color(_ANY)
        self._rgb = first + (second - first) * self._ramp(dice, 0.35, 0.5, 1)
        self.move = 0, 0, 1

    def _ramp(self, dice: Dice, steep, middle, high) -> np.ndarray:
        """Returns a plane of numbers that grow in a random direction."""
        right, down = dice.uniform(-steep, steep), dice.uniform(-steep, steep)
        return _clip(self._x * right + (self._y * down + middle), 0, high)

    def oval(self, color, x, y, wide, high, square=0.0, taper=0.0, tilt=0.0):
        """Paints an oval, and its mirror image if x is positive.

        Args:
            color: RGB in 0...1, `[3, 1, 1]`, or a gray.
            x: horizontal center.
            y: vertical center.
            wide: horizontal semi-axis.
            high: vertical semi-axis.
            square: 0 for an ellipse; toward 1 it approaches a square.
            taper: how much narrower the lower end is.
            tilt: how far it drops toward the right, as a slope.
        """
        if x > 0:
            self.oval(color, -x, y, wide, high, square, taper, -tilt)
        (right, down, stretch), (cos, sin, column, row) = self.move, self._pose
        x, y, high = x + right, y + down, high * stretch
        # The window of pixels around the oval.
        broad, tall = wide / (1 - abs(taper)), high + abs(tilt) * wide
        rows = _around(row + sin * x + cos * y, abs(sin) * broad + cos * tall)
        columns = _around(column + cos * x - sin * y, cos * broad + abs(sin) * tall)
        u, v = self._x[rows, columns] - x, self._y[rows, columns] - y
        if tilt:
            v -= tilt * u
        u *= 1 / wide
        v *= 1 / high
        if taper:
            u *= 1 + taper * v
        for each in (u, v):
            each *= each
            if square:
                each *= 1 - square + square * each
        u += v
        # Near the edge, which is a pixel wide, this is close to the distance from it.
        radius = min(wide, high) * self._scale / 2
        mask = _clip((radius + 0.5) - radius * u, 0, 1)
        part = self._rgb[:, rows, columns]
        part += (color - part) * mask

    def finish(self, dice: Dice) -> np.ndarray:
        """Adds light and noise; returns uint8 `[h, w, 3]`."""
        picture, gain = self._rgb, dice.uniform(140, 306)
        picture *= self._ramp(dice, 0.35, 1, 2)
        tint = [gain * dice.uniform(0.86, 1.12) for _ in range(3)]
        picture *= np.float32(tint).reshape(3, 1, 1)
        noise = np.float32(np.frombuffer(dice.randbytes(picture.size), np.uint8))
        noise = noise.reshape(picture.shape) - 127
        picture += noise * (dice.uniform(10, 45) / 255)
        return np.stack(_clip(picture, 0, 255).astype(np.uint8), axis=-1)


def _around(center: float, reach: float) -> slice:
    return slice(max(int(center - reach), 0), max(int(center + reach) + 2, 0))


def _clip(values: np.ndarray, low: float, high: float) -> np.ndarray:
    # Faster than `np.clip`.
    return np.minimum(np.maximum(values, low, out=values), high, out=values)
