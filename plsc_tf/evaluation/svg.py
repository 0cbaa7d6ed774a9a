"""Charts as SVG text: curves and histograms, with axes, ticks and a legend."""

import dataclasses
import html
import math

COLORS = ("#1f5fa8", "#c2491d", "#3d7f3d", "#7a4a99", "#8a6d00", "#444444")
INK, FAINT, GRID = "#222222", "#666666", "#e2e2e2"
WIDTH, PLOT_HEIGHT = 480, 260
LEFT, RIGHT, BOTTOM, LINE = 58, 18, 46, 18
# Of a letter at 12 pixels, on average; generous, as fonts differ.
LETTER = 6.8


@dataclasses.dataclass(frozen=True)
class Curve:
    """One line of a chart.

    Attributes:
        label: for the legend.
        points: list of (x, y), x ascending.
        steps: whether y keeps its value until the next x.
    """

    label: str
    points: list
    steps: bool = False


@dataclasses.dataclass(frozen=True)
class Mark:
    """A dashed vertical line.

    Attributes:
        label: for the legend.
        x: where.
    """

    label: str
    x: float


@dataclasses.dataclass(frozen=True)
class Axis:
    """A direction of a chart.

    Attributes:
        label: what is shown, with its unit.
        low: its end on the left or at the bottom.
        high: the other end.
        log: logarithmic, in decades.
    """

    label: str
    low: float
    high: float
    log: bool = False

    def place(self, value):
        """The share of the way from `low` to `high`, kept within 0 ... 1."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log10(max(v, 1e-300)) for v in (value, low, high))
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def ticks(self):
        """The values to name: decades, or about six round numbers."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.log10(self.high)
            return [10.0**power for power in range(first, math.floor(last + 1e-9) + 1)]
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(k * power for k in (1, 2, 5, 10) if k * power >= rough)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def chart(title, x, y, curves, marks=(), filled=False):
    """Draws curves, and vertical marks, as one SVG.

    Args:
        title: what the chart shows, for those who do not see it.
        x: `Axis`.
        y: `Axis`.
        curves: list of `Curve`, at most as many as `COLORS`.
        marks: list of `Mark`.
        filled: fills the area under each curve, as histograms are drawn.

    Returns:
        The text of the picture.
    """
    legend, top = _legend(curves, marks)
    height = top + PLOT_HEIGHT + BOTTOM
    plot = (LEFT, top, WIDTH - RIGHT, top + PLOT_HEIGHT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{html.escape(title)}" font-size="12" '
        'font-family="system-ui, Helvetica, Arial, sans-serif">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_axes(x, y, plot),
        *(_curve(c, COLORS[i], x, y, plot, filled) for i, c in enumerate(curves)),
        *(_mark(m, i, x, plot) for i, m in enumerate(marks)),
        *legend,
        "</svg>",
    ]
    return "\n".join(parts)


def _legend(curves, marks):
    """(lines of SVG, height that they take) of the names above the plot."""
    entries = [(c.label, COLORS[i], None) for i, c in enumerate(curves)]
    entries += [(m.label, INK, _dash(i)) for i, m in enumerate(marks)]
    parts, left, row = [], LEFT, 0
    for label, color, dash in entries:
        width = 30 + LETTER * len(label) + 14
        if left > LEFT and left + width > WIDTH:
            left, row = LEFT, row + 1
        middle = 14 + row * LINE
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<line x1="{left}" x2="{left + 24}" y1="{middle}" y2="{middle}" '
            f'stroke="{color}" stroke-width="2"{dashes}/>'
            + _text(left + 30, middle + 4, label, "start", INK)
        )
        left += width
    return parts, 14 + (row + 1) * LINE


def _axes(x, y, plot):
    left, top, right, bottom = plot
    for tick in x.ticks():
        at = left + x.place(tick) * (right - left)
        yield _line(at, top, at, bottom, GRID)
        yield _text(at, bottom + 16, tick_text(tick, x.log), "middle", FAINT)
    for tick in y.ticks():
        at = bottom - y.place(tick) * (bottom - top)
        yield _line(left, at, right, at, GRID)
        yield _text(left - 6, at + 4, tick_text(tick, y.log), "end", FAINT)
    yield _line(left, bottom, right, bottom, FAINT)
    yield _line(left, top, left, bottom, FAINT)
    yield _text((left + right) / 2, bottom + 36, x.label, "middle", INK)
    middle = (top + bottom) / 2
    yield (
        f'<text transform="translate(14 {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle" fill="{INK}">{html.escape(y.label)}</text>'
    )


def _curve(curve, color, x, y, plot, filled):
    left, top, right, bottom = plot
    places = [
        (left + x.place(a) * (right - left), bottom - y.place(b) * (bottom - top))
        for a, b in curve.points
    ]
    path, last = [], None
    for px, py in places:
        if curve.steps and last is not None:
            path.append(f"{px:.1f},{last:.1f}")
        path.append(f"{px:.1f},{py:.1f}")
        last = py
    # Points that round to the same place need not be drawn twice.
    path = [p for i, p in enumerate(path) if i == 0 or p != path[i - 1]]
    text = f'stroke="{color}" stroke-width="1.8" stroke-linejoin="round"'
    if len(path) == 1 and not filled:  # a line of no length is not seen
        px, py = path[0].split(",")
        return f'<circle cx="{px}" cy="{py}" r="3" fill="{color}"/>'
    if not filled:
        return f'<polyline points="{" ".join(path)}" fill="none" {text}/>'
    ends = f"{places[0][0]:.1f},{bottom:.1f}", f"{places[-1][0]:.1f},{bottom:.1f}"
    points = " ".join([ends[0], *path, ends[1]])
    return f'<polygon points="{points}" fill="{color}" fill-opacity="0.25" {text}/>'


def _mark(mark, number, x, plot):
    left, top, right, bottom = plot
    at = left + x.place(mark.x) * (right - left)
    return (
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}" stroke="{INK}" '
        f'stroke-width="1.5" stroke-dasharray="{_dash(number)}"/>'
    )


def _dash(number):
    return ("6 4", "2 3", "9 3 2 3")[number % 3]


def _line(x1, y1, x2, y2, color):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{color}"/>'
    )


def _text(x, y, text, anchor, color):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'fill="{color}">{html.escape(text)}</text>'
    )


def tick_text(value, log=False):
    """The text beside a tick."""
    if log and not 0.001 <= value <= 1000:
        return f"1e{round(math.log10(value))}"
    return f"{value:.6g}"
