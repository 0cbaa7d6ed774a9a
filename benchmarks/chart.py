"""Line charts with two logarithmic axes, drawn with Pillow."""

import dataclasses
import math

from PIL import Image, ImageDraw, ImageFont

# Drawn at twice the size and scaled down, because Pillow does not smooth lines.
OVERSAMPLING = 2
INK, FAINT, GRID = "#222222", "#666666", "#dddddd"


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        label: its name in the legend.
        points: list of (x, y), both positive.
        color: as Pillow takes it.
        dashed: a reference rather than a measurement: no markers.
    """

    label: str
    points: list
    color: str
    dashed: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: what is shown.
        x_label: with unit.
        y_label: with unit.
        lines: list of `Line`.
    """

    title: str
    x_label: str
    y_label: str
    lines: list


def save(path, panels, size=(620, 460)):
    """Draws panels side by side into a PNG.

    Args:
        path: the file.
        panels: list of `Panel`.
        size: width and height of each, in pixels.

    Raises:
        ValueError: a panel has no point, or one that a logarithm cannot show.
    """
    width, height = (OVERSAMPLING * side for side in size)
    image = Image.new("RGB", (width * len(panels), height), "white")
    for i, panel in enumerate(panels):
        _Axes(image, panel, (i * width, 0, (i + 1) * width, height)).draw()
    shown = (size[0] * len(panels), size[1])
    image.resize(shown, Image.Resampling.LANCZOS).save(path)


class _Axes:
    """Draws one panel into its box of an image."""

    def __init__(self, image, panel, box):
        points = [point for line in panel.lines for point in line.points]
        if not points or min(min(point) for point in points) <= 0:
            raise ValueError(
                f"The chart {panel.title!r} needs points with positive coordinates. "
                f"Received: {points}"
            )
        self.image = image
        self.draw_on = ImageDraw.Draw(image)
        self.panel = panel
        self.unit = 12 * OVERSAMPLING
        self.font = ImageFont.load_default(self.unit)
        self.title_font = ImageFont.load_default(self.unit * 1.15)
        left, top, right, bottom = box
        self.left, self.right = left + 5.2 * self.unit, right - 1.5 * self.unit
        self.top, self.bottom = top + 3 * self.unit, bottom - 4.2 * self.unit
        self.x_range = _decades([x for x, _ in points])
        self.y_range = _decades([y for _, y in points])

    def draw(self):
        self._grid()
        for line in self.panel.lines:
            self._line(line)
        self._legend()
        middle = (self.left + self.right) / 2
        self._text((middle, self.bottom + 3.2 * self.unit), self.panel.x_label, "mm")
        self._text(
            (self.left, self.top - 1.4 * self.unit),
            self.panel.title,
            "lm",
            self.title_font,
        )
        self._vertical_text(self.panel.y_label)

    def _x(self, value):
        return self._place(value, self.x_range, self.left, self.right)

    def _y(self, value):
        return self._place(value, self.y_range, self.bottom, self.top)

    @staticmethod
    def _place(value, bounds, start, stop):
        low, high = bounds
        return start + (math.log10(value) - low) / (high - low) * (stop - start)

    def _grid(self):
        for tick, text in _ticks(self.x_range):
            x = self._x(tick)
            self._segment((x, self.top), (x, self.bottom), GRID)
            if text:
                self._text((x, self.bottom + self.unit), text, "mm", color=FAINT)
        for tick, text in _ticks(self.y_range):
            y = self._y(tick)
            self._segment((self.left, y), (self.right, y), GRID)
            if text:
                self._text((self.left - 0.5 * self.unit, y), text, "rm", color=FAINT)
        self._segment((self.left, self.bottom), (self.right, self.bottom), FAINT)
        self._segment((self.left, self.top), (self.left, self.bottom), FAINT)

    def _line(self, line):
        places = [(self._x(x), self._y(y)) for x, y in sorted(line.points)]
        for start, stop in zip(places, places[1:], strict=False):
            if line.dashed:
                self._dashes(start, stop, line.color)
            else:
                self._segment(start, stop, line.color, 2)
        if not line.dashed:
            for place in places:
                self._marker(place, line.color)

    def _legend(self):
        x = self.left + self.unit
        for i, line in enumerate(self.panel.lines):
            y = self.top + (1.2 + 1.5 * i) * self.unit
            start, stop = (x, y), (x + 2.4 * self.unit, y)
            if line.dashed:
                self._dashes(start, stop, line.color)
            else:
                self._segment(start, stop, line.color, 2)
                self._marker((x + 1.2 * self.unit, y), line.color)
            self._text((x + 3 * self.unit, y), line.label, "lm")

    def _marker(self, place, color):
        x, y = place
        radius = 3.5 * OVERSAMPLING
        box = (x - radius, y - radius, x + radius, y + radius)
        self.draw_on.ellipse(box, color, "white", OVERSAMPLING)

    def _segment(self, start, stop, color, width=1):
        self.draw_on.line([start, stop], color, int(width * OVERSAMPLING))

    def _dashes(self, start, stop, color):
        dash, gap = 5 * OVERSAMPLING, 4 * OVERSAMPLING
        length = math.dist(start, stop)
        step = [(b - a) / length for a, b in zip(start, stop, strict=True)]
        at = 0.0
        while at < length:
            end = min(at + dash, length)
            ends = [
                tuple(a + d * t for a, d in zip(start, step, strict=True))
                for t in (at, end)
            ]
            self._segment(*ends, color, 1.5)
            at = end + gap

    def _text(self, place, text, anchor, font=None, color=INK):
        font = font or self.font
        box = self.draw_on.textbbox(place, text, font, anchor)
        if anchor == "lm" and font is self.font:
            self.draw_on.rectangle(box, "white")
        self.draw_on.text(place, text, color, font, anchor)

    def _vertical_text(self, text):
        left, top, right, bottom = self.font.getbbox(text)
        strip = Image.new(
            "RGB", (int(right - left) + 4, int(bottom - top) + 4), "white"
        )
        ImageDraw.Draw(strip).text((2 - left, 2 - top), text, INK, self.font)
        strip = strip.rotate(90, expand=True)
        middle = (self.top + self.bottom) / 2
        place = (int(self.left - 4.6 * self.unit), int(middle - strip.height / 2))
        self.image.paste(strip, place)


def _decades(values):
    """Base-10 logarithms of the bounds of an axis, a little wider than the values."""
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = max(0.06 * (high - low), 0.1)
    return low - margin, high + margin


def _ticks(bounds):
    """(value, text) at 1, 2 and 5 of every decade; text at 1, or at all of a few."""
    low, high = bounds
    exponents = range(math.floor(low), math.ceil(high) + 1)
    ticks = [digit * 10.0**e for e in exponents for digit in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= math.log10(tick) <= high]
    every = high - low < 3.2
    return [
        (tick, _number(tick) if every or f"{tick:e}".startswith("1") else "")
        for tick in ticks
    ]


def _number(value):
    """100 as 100, 10000 as 10k, 1000000 as 1M; small ones as they are."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
