"""Draws synthetic faces: one figure per identity, in any pose and light.

An identity is a set of shapes and colors; an image adds a pose, an expression,
light, a background and noise. Pixels are computed with +, -, *, / and square roots
only, which every machine rounds alike, so an image is the same on every machine.
"""

import colorsys
import math
import types

import numpy as np

# The properties that all images of one figure share; lengths are in half heads.
Identity = types.SimpleNamespace


def identity(seed: int, label: int) -> Identity:
    """Returns the figure of a class, which depends only on (seed, label)."""
    dice = Dice(seed, label)
    # Half of the figures have human skin colors, the other half toy colors.
    human = dice.within(0, 1) < 0.5
    skin = dice.color((0.03, 0.09), (0.25, 0.65), (0.45, 0.98))
    toy = dice.color((0, 1), (0.25, 0.6), (0.6, 0.95))
    return Identity(
        head_width=dice.within(0.70, 1.0),
        head_height=dice.within(0.82, 1.08),
        squareness=dice.within(0.0, 0.8),
        taper=dice.within(-0.10, 0.28),
        skin=skin if human else toy,
        ears=dice.one_of("none", "human", "round", "pointed", "long"),
        ear_size=dice.within(0.17, 0.32),
        ear_height=dice.within(-0.10, 0.15),
        hair=dice.one_of("bald", "cap", "fringe", "parted", "crest", "curls", "long"),
        hair_color=dice.color((0, 1), (0.15, 0.85), (0.12, 0.85)),
        hair_line=dice.within(-0.72, -0.42),
        eye_spacing=dice.within(0.24, 0.46),
        eye_height=dice.within(-0.26, 0.06),
        eye_size=dice.within(0.12, 0.22),
        eye_aspect=dice.within(0.6, 1.25),
        iris=dice.color((0, 1), (0.4, 0.9), (0.25, 0.8)),
        iris_size=dice.within(0.45, 0.75),
        brow_width=dice.within(0.025, 0.075),
        brow_gap=dice.within(0.05, 0.16),
        brow_tilt=dice.within(-0.35, 0.35),
        nose=dice.one_of("button", "wedge", "line"),
        nose_size=dice.within(0.07, 0.17),
        nose_height=dice.within(0.14, 0.30),
        mouth_width=dice.within(0.16, 0.42),
        mouth_height=dice.within(0.46, 0.66),
        mouth_curve=dice.within(-0.3, 0.9),
        mouth_color=dice.color((0.93, 1.05), (0.5, 0.9), (0.35, 0.85)),
        beard=dice.within(-1.0, 0.6),
        blush=dice.within(-0.5, 0.6),
        patch=dice.within(-1.6, 1.0),
        patch_color=dice.color((0, 1), (0.2, 0.7), (0.25, 0.95)),
        glasses=dice.one_of("none", "none", "none", "round", "square"),
    )


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
    who = identity(seed, label)
    dice = Dice(seed, label, index, 1)
    canvas = Canvas(size, dice)
    turn, nod = dice.within(-0.16, 0.16), dice.within(-0.10, 0.10)
    _background(canvas, dice)
    shirt = dice.color((0, 1), (0.2, 0.8), (0.25, 0.9))
    canvas.oval(shirt, 0, 2.0, 1.25, 1.0, 0.3)
    if who.hair == "long":
        wide, high = who.head_width + 0.17, who.head_height + 0.12
        canvas.oval(who.hair_color * 0.9, 0, 0.16, wide, high + 0.12, 0.5)
    _ears(canvas, who, turn)
    _head(canvas, who)
    canvas.look(turn, nod)
    _marks(canvas, who)
    _eyes(canvas, who, dice)
    _nose(canvas, who)
    _mouth(canvas, who, dice)
    canvas.look(turn / 2, nod / 2)
    _hair(canvas, who)
    return canvas.finish(dice, seed, label, index)


def _background(canvas: "Canvas", dice: "Dice"):
    first = dice.color((0, 1), (0.05, 0.6), (0.2, 0.95))
    second = dice.color((0, 1), (0.05, 0.6), (0.2, 0.95))
    angle = dice.within(0, 2 * math.pi)
    across = math.cos(angle) * canvas.screen_x + math.sin(angle) * canvas.screen_y
    canvas.rgb[...] = first[:, np.newaxis, np.newaxis]
    canvas.paint(np.clip(across * 0.5 + 0.5, 0, 1), second)


def _ears(canvas: "Canvas", who: Identity, turn: float):
    size, inner = who.ear_size, who.skin * 0.75
    # Position, and semi-axes of the outer and the inner ellipse.
    round_ears = {
        "human": (0.98, who.ear_height, 0.6, 1, 0.3, 0.6),
        "round": (0.72, -who.head_height * 0.78, 1.1, 1.1, 0.6, 0.6),
        "long": (0.45, -who.head_height - size * 0.6, 0.6, 2, 0.3, 1.4),
    }
    canvas.look(-turn / 3, 0)
    for side in (-1, 1):
        if who.ears == "pointed":
            x, y = side * who.head_width * 0.62, -who.head_height * 0.62
            for part, color in ((1.0, who.skin * 0.92), (0.55, inner)):
                half, high = size * 1.3 * part, size * 2.6 * part
                tip = x + side * half * 0.7, y - high
                ear = canvas.triangle((x - half, y), tip, (x + half, y))
                canvas.paint(ear, color)
        elif who.ears in round_ears:
            x, y, *axes = round_ears[who.ears]
            x, (a, b, c, d) = side * who.head_width * x, [size * axis for axis in axes]
            canvas.oval(who.skin * 0.92, x, y, a, b)
            canvas.oval(inner, x, y, c, d)
    canvas.look(0, 0)


def _head(canvas: "Canvas", who: Identity):
    wide, high = who.head_width, who.head_height
    shape = (who.squareness, who.taper)
    canvas.oval(who.skin * 0.82, 0, 0, wide, high, *shape)
    inner = canvas.ellipse(0, -0.02, wide - 0.06, high - 0.06, *shape)
    canvas.paint(inner, who.skin)
    if who.beard > 0:
        below = np.clip((canvas.y - (0.75 - who.beard)) * 12, 0, 1)
        canvas.paint(inner * below, who.hair_color * 0.85)


def _marks(canvas: "Canvas", who: Identity):
    if who.patch > 0:
        side = 1 if who.patch > 0.5 else -1
        x, y, size = side * who.eye_spacing, who.eye_height, who.eye_size + 0.12
        canvas.oval(who.patch_color, x, y, size, size * 1.2)
    if who.blush > 0:
        for side in (-1, 1):
            mask = canvas.ellipse(side * who.head_width * 0.58, 0.3, 0.17, 0.13)
            canvas.paint(mask * who.blush, (0.95, 0.4, 0.4))


def _eyes(canvas: "Canvas", who: Identity, dice: "Dice"):
    openness = dice.within(0.7, 1.1)
    gaze_x, gaze_y = dice.within(-0.3, 0.3), dice.within(-0.2, 0.2)
    wide, high = who.eye_size, who.eye_size * who.eye_aspect * openness
    iris = min(wide, high) * who.iris_size
    for side in (-1, 1):
        x, y = side * who.eye_spacing, who.eye_height
        white = canvas.ellipse(x, y, wide, high)
        canvas.oval((0.1, 0.08, 0.1), x, y, wide + 0.025, high + 0.025)
        canvas.paint(white, (0.97, 0.97, 0.95))
        x, y = x + gaze_x * (wide - iris), y + gaze_y * (high - iris)
        canvas.paint(canvas.ellipse(x, y, iris, iris) * white, who.iris)
        canvas.oval((0.05, 0.05, 0.07), x, y, iris / 2, iris / 2)
        canvas.oval((1, 1, 1), x - iris * 0.3, y - iris * 0.3, iris / 4, iris / 4)
        _brow(canvas, who, side, who.eye_height - high)
        if who.glasses != "none":
            _lens(canvas, who, side)
    if who.glasses != "none":
        inner = who.eye_spacing - who.eye_size - 0.08
        if inner > 0.03:
            bridge = canvas.stroke(-inner, who.eye_height, inner, who.eye_height, 0.02)
            canvas.paint(bridge, (0.12, 0.1, 0.12))


def _brow(canvas: "Canvas", who: Identity, side: int, top: float):
    inner, outer = who.eye_spacing - who.eye_size, who.eye_spacing + who.eye_size
    y, tilt = top - who.brow_gap, who.brow_tilt * who.eye_size
    ends = (side * inner, y + tilt, side * outer, y - tilt)
    canvas.paint(canvas.stroke(*ends, who.brow_width), who.hair_color * 0.6)


def _lens(canvas: "Canvas", who: Identity, side: int):
    square = 0.9 if who.glasses == "square" else 0.0
    x, y, size = side * who.eye_spacing, who.eye_height, who.eye_size + 0.09
    outside = canvas.ellipse(x, y, size, size * 0.95, square)
    inside = canvas.ellipse(x, y, size - 0.045, size * 0.95 - 0.045, square)
    canvas.paint(outside - inside, (0.12, 0.1, 0.12))


def _nose(canvas: "Canvas", who: Identity):
    y, size, color = who.nose_height, who.nose_size, who.skin * 0.68
    if who.nose == "button":
        canvas.oval(color, 0, y, size, size * 0.8)
        glint = canvas.ellipse(-size * 0.3, y - size * 0.3, size * 0.25, size * 0.2)
        canvas.paint(glint * 0.6, (1, 1, 1))
    elif who.nose == "wedge":
        top, half, low = (0, y - size * 1.6), size * 0.8, y + size / 2
        canvas.paint(canvas.triangle((-half, low), top, (half, low)), color)
    else:
        canvas.paint(canvas.stroke(0, y - size, size * 0.3, y + size / 2, 0.035), color)


def _mouth(canvas: "Canvas", who: Identity, dice: "Dice"):
    bend = who.mouth_curve + dice.within(-0.25, 0.25)
    opened = max(0.0, dice.within(-0.10, 0.10))
    wide, y = who.mouth_width, who.mouth_height
    if opened > 0.02:
        dark = who.mouth_color * 0.4
        canvas.oval(dark, 0, y + opened * 0.6, wide * 0.7, opened + 0.03)
    canvas.paint(canvas.arc(0, y, wide, bend, 0.04), who.mouth_color)


def _hair(canvas: "Canvas", who: Identity):
    wide, high, color = who.head_width, who.head_height, who.hair_color
    if who.hair == "crest":
        for k in range(-2, 3):
            canvas.oval(color, k * 0.10, -high - 0.02 + abs(k) * 0.04, 0.11, 0.24)
    elif who.hair == "curls":
        for k in range(-3, 4):
            x = k / 3 * wide * 0.85
            y = -high * 0.95 + (x / wide) ** 2 * high * 0.42
            canvas.oval(color, x, y, 0.19, 0.19)
    elif who.hair != "bald":
        scalp = canvas.ellipse(0, -0.04, wide + 0.05, high + 0.05, who.squareness)
        shifts = {"fringe": 0.14, "parted": canvas.x * -0.55}
        shift = shifts.get(who.hair, canvas.x * canvas.x * 0.35)
        canvas.paint(scalp * canvas.edge(canvas.y - who.hair_line - shift), color)


class Dice:
    """Draws random numbers from one seeded stream with little overhead."""

    def __init__(self, *seeds: int):
        self._values = iter(np.random.default_rng(seeds).random(96).tolist())

    def within(self, low: float, high: float) -> float:
        """Returns a random number between two bounds."""
        return low + (high - low) * next(self._values)

    def one_of(self, *items: str) -> str:
        """Returns a random item."""
        return items[int(len(items) * next(self._values))]

    def color(self, hues, saturations, values) -> np.ndarray:
        """Returns a random color as RGB in 0...1; the ranges are in HSV."""
        hue, saturation = self.within(*hues) % 1, self.within(*saturations)
        return np.float32(colorsys.hsv_to_rgb(hue, saturation, self.within(*values)))


class Canvas:
    """An image with head coordinates: x to the right, y down, head radius about 1."""

    def __init__(self, size: tuple[int, int], dice: "Dice"):
        height, width = size
        scale = 2 / min(height, width)
        columns = (np.arange(width, dtype=np.float32) + 0.5 - width / 2) * scale
        rows = (np.arange(height, dtype=np.float32) + 0.5 - height / 2) * scale
        self.screen_x, self.screen_y = columns[np.newaxis, :], rows[:, np.newaxis]
        angle = math.radians(dice.within(-24, 24))
        zoom = dice.within(1.25, 1.75)
        x = self.screen_x - dice.within(-0.16, 0.16)
        y = self.screen_y - dice.within(-0.14, 0.18)
        cos, sin = math.cos(angle) * zoom, math.sin(angle) * zoom
        self._head_x, self._head_y = cos * x + sin * y, cos * y - sin * x
        self.x, self.y = self._head_x, self._head_y
        self._per_pixel = 1 / (scale * zoom)
        # Planes `[3, h, w]`, because numpy paints them much faster than `[h, w, 3]`.
        self.rgb = np.empty((3, height, width), np.float32)

    def look(self, turn: float, nod: float):
        """Shifts later drawing on the head, as if the head turned and nodded."""
        self.x, self.y = self._head_x - turn, self._head_y - nod

    def paint(self, mask: np.ndarray, color) -> None:
        """Blends a color into the image; mask `[h, w]` is its opacity in 0...1."""
        change = np.array(color, np.float32)[:, np.newaxis, np.newaxis] - self.rgb
        change *= mask
        self.rgb += change

    def oval(self, color, *shape: float) -> None:
        """Paints an `ellipse`."""
        self.paint(self.ellipse(*shape), color)

    def edge(self, distance: np.ndarray) -> np.ndarray:
        """Returns the mask of negative signed distances; its edge is a pixel wide."""
        mask = 0.5 - distance * self._per_pixel
        # Faster than `np.clip`.
        return np.minimum(np.maximum(mask, 0, out=mask), 1, out=mask)

    def ellipse(self, x, y, wide, high, square=0.0, taper=0.0) -> np.ndarray:
        """Returns the mask of an ellipse.

        Args:
            x: horizontal center.
            y: vertical center.
            wide: horizontal semi-axis.
            high: vertical semi-axis.
            square: 0 for an ellipse; toward 1 it approaches a square.
            taper: how much narrower the lower end is.
        """
        u, v = (self.x - x) * (1 / wide), (self.y - y) * (1 / high)
        if taper:
            u /= np.clip(1 - taper * v, 0.4, 1.6)
        for each in (u, v):
            each *= each
            if square:
                each *= 1 - square + square * each
        u += v
        # Scaling by the smaller semi-axis approximates the distance near the edge.
        return self.edge((np.sqrt(u, out=u) - 1) * min(wide, high))

    def stroke(self, x0, y0, x1, y1, radius) -> np.ndarray:
        """Returns the mask of a line with round ends."""
        dx, dy = np.float32(x1 - x0), np.float32(y1 - y0)
        px, py = self.x - x0, self.y - y0
        along = np.clip((px * dx + py * dy) / (dx * dx + dy * dy), 0, 1)
        px, py = px - along * dx, py - along * dy
        return self.edge(np.sqrt(px * px + py * py) - radius)

    def arc(self, x, y, wide, bend, radius) -> np.ndarray:
        """Returns the mask of a parabolic arc; positive `bend` raises its ends."""
        u = (self.x - x) * (1 / wide)
        v = self.y - y + bend * wide * (u * u - 0.5)
        beyond = np.maximum(np.abs(u) - 1, 0) * wide
        return self.edge(np.sqrt(v * v + beyond * beyond) - radius)

    def triangle(self, *corners) -> np.ndarray:
        """Returns the mask of a triangle; corners are clockwise on the screen."""
        sides = []
        for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
            length = math.hypot(x1 - x0, y1 - y0)
            a, b = (y1 - y0) / length, (x0 - x1) / length
            sides.append(a * (self.x - x0) + b * (self.y - y0))
        return self.edge(np.maximum.reduce(sides))

    def finish(self, dice: "Dice", *seeds: int) -> np.ndarray:
        """Adds light and noise; returns uint8 `[h, w, 3]`."""
        angle, slope = dice.within(0, 2 * math.pi), dice.within(0.1, 0.55)
        light = slope * math.cos(angle) * self.screen_x
        light = light + slope * math.sin(angle) * self.screen_y + 1
        gain = dice.within(0.55, 1.2) * 255
        tint = [gain * dice.within(0.86, 1.12) for _ in range(3)]
        picture = self.rgb * np.maximum(light, 0.15)
        picture *= np.array(tint, np.float32)[:, np.newaxis, np.newaxis]
        noise = np.random.default_rng((*seeds, 2)).random(picture.shape, np.float32)
        picture += (noise - 0.5) * dice.within(10, 45)
        picture = np.clip(picture + 0.5, 0, 255).astype(np.uint8)
        return np.ascontiguousarray(picture.transpose(1, 2, 0))
