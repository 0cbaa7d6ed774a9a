"""A canvas for drawn figures: soft-edged shapes, light and noise, in numpy.

Pixels see only +, -, *, / and square roots, which are rounded the same way everywhere,
so that an image is the same on every machine.
"""

from __future__ import annotations

import colorsys
import math

import numpy as np


class Dice:
    """Draws numbers from one seeded stream, cheaply."""

    def __init__(self, *seeds: int):
        self._values = iter(np.random.default_rng(seeds).random(96).tolist())

    def within(self, low: float, high: float) -> float:
        """A number between two bounds."""
        return low + (high - low) * next(self._values)

    def one_of(self, items):
        """One of some items."""
        return items[int(len(items) * next(self._values))]

    def color(self, hues, saturations, values) -> np.ndarray:
        """A color of hue, saturation and value within ranges, RGB in 0...1."""
        hue, saturation = self.within(*hues) % 1, self.within(*saturations)
        rgb = colorsys.hsv_to_rgb(hue, saturation, self.within(*values))
        return np.array(rgb, np.float32)


class Canvas:
    """Pixels in the coordinates of a head: x to the right, y down, radius about 1."""

    def __init__(self, size: tuple[int, int], dice: Dice):
        height, width = size
        scale = 2 / min(height, width)
        columns = (np.arange(width, dtype=np.float32) + 0.5 - width / 2) * scale
        rows = (np.arange(height, dtype=np.float32) + 0.5 - height / 2) * scale
        self.screen_x, self.screen_y = columns[np.newaxis, :], rows[:, np.newaxis]
        angle = math.radians(dice.within(-24, 24))
        zoom = dice.within(1.25, 1.75)
        x = self.screen_x - np.float32(dice.within(-0.16, 0.16))
        y = self.screen_y - np.float32(dice.within(-0.14, 0.18))
        cos = np.float32(math.cos(angle) * zoom)
        sin = np.float32(math.sin(angle) * zoom)
        self._head_x, self._head_y = cos * x + sin * y, cos * y - sin * x
        self.x, self.y = self._head_x, self._head_y
        self._per_pixel = np.float32(1 / (scale * zoom))
        # Planes [3, h, w]: numpy paints them much faster than pixels [h, w, 3].
        self.rgb = np.empty((3, height, width), np.float32)

    def look(self, turn: float, nod: float):
        """Moves what is drawn next across the head, as if it turned and nodded."""
        self.x = self._head_x - np.float32(turn)
        self.y = self._head_y - np.float32(nod)

    def paint(self, mask: np.ndarray, color) -> None:
        """Covers the mask, 0...1 [h, w], with a color."""
        for plane, value in zip(self.rgb, color, strict=True):
            plane += mask * (np.float32(value) - plane)

    def edge(self, distance: np.ndarray) -> np.ndarray:
        """Mask of where a signed distance is negative, one pixel soft."""
        return np.clip(np.float32(0.5) - distance * self._per_pixel, 0, 1)

    def ellipse(self, x, y, wide, high, square=0.0, taper=0.0) -> np.ndarray:
        """Mask of an ellipse, towards a square, narrower below by `taper`."""
        u = (self.x - np.float32(x)) * np.float32(1 / wide)
        v = (self.y - np.float32(y)) * np.float32(1 / high)
        if taper:
            u = u / np.clip(1 - np.float32(taper) * v, 0.4, 1.6)
        u2, v2 = u * u, v * v
        if square:
            u2 = u2 * (np.float32(1 - square) + np.float32(square) * u2)
            v2 = v2 * (np.float32(1 - square) + np.float32(square) * v2)
        radius = np.sqrt(u2 + v2)
        # The distance grows with the smaller half axis: good enough for an edge.
        return self.edge((radius - 1) * np.float32(min(wide, high)))

    def stroke(self, x0, y0, x1, y1, radius) -> np.ndarray:
        """Mask of a line with round ends."""
        dx, dy = np.float32(x1 - x0), np.float32(y1 - y0)
        px, py = self.x - np.float32(x0), self.y - np.float32(y0)
        along = np.clip((px * dx + py * dy) / (dx * dx + dy * dy), 0, 1)
        px, py = px - along * dx, py - along * dy
        return self.edge(np.sqrt(px * px + py * py) - np.float32(radius))

    def arc(self, x, y, wide, bend, radius) -> np.ndarray:
        """Mask of a parabola's arc: ends at y - bend * wide."""
        u = (self.x - np.float32(x)) * np.float32(1 / wide)
        v = self.y - np.float32(y) + np.float32(bend * wide) * (u * u - np.float32(0.5))
        beyond = np.maximum(np.abs(u) - 1, 0) * np.float32(wide)
        return self.edge(np.sqrt(v * v + beyond * beyond) - np.float32(radius))

    def triangle(self, *corners) -> np.ndarray:
        """Mask of a triangle with clockwise corners (on the screen)."""
        distance = None
        for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
            length = math.hypot(x1 - x0, y1 - y0)
            a, b = np.float32((y1 - y0) / length), np.float32((x0 - x1) / length)
            side = a * (self.x - np.float32(x0)) + b * (self.y - np.float32(y0))
            distance = side if distance is None else np.maximum(distance, side)
        return self.edge(distance)

    def finish(self, dice: Dice, *seeds: int) -> np.ndarray:
        """Adds light and noise; returns uint8."""
        angle = dice.within(0, 2 * math.pi)
        slope = dice.within(0.1, 0.55)
        light = np.float32(slope * math.cos(angle)) * self.screen_x
        light = light + np.float32(slope * math.sin(angle)) * self.screen_y + 1
        gain = dice.within(0.55, 1.2) * 255
        tint = [gain * dice.within(0.86, 1.12) for _ in range(3)]
        picture = self.rgb * np.maximum(light, np.float32(0.15))
        picture *= np.array(tint, np.float32)[:, np.newaxis, np.newaxis]
        strength = np.float32(dice.within(10, 45))
        noise = np.random.default_rng((*seeds, 2)).random(picture.shape, np.float32)
        picture += (noise - np.float32(0.5)) * strength
        picture = np.clip(picture + np.float32(0.5), 0, 255).astype(np.uint8)
        return np.ascontiguousarray(picture.transpose(1, 2, 0))
