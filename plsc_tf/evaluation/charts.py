"""Charts of curves and histograms, drawn with matplotlib as SVG or PNG."""

import dataclasses
import io
import itertools
from collections.abc import Sequence

COLORS = ("#1f5fa8", "#c2491d", "#3d7f3d", "#7a4a99", "#8a6d00")
COLORS += ("#444444", "#17a2b8", "#d6559b", "#9aa800", "#a0522d")
INK, GRID = "#222222", "#e2e2e2"
# Inches; small enough to keep the text legible on a narrow page.
SIZE = (5.2, 3.5)


@dataclasses.dataclass(frozen=True)
class Curve:
    """One curve in a chart.

    Attributes:
        label: text in the legend.
        points: (x, y) of each point, in ascending order of x.
        steps: whether y keeps its value until the next x.
    """

    label: str
    points: Sequence
    steps: bool = False


@dataclasses.dataclass(frozen=True)
class Mark:
    """A dashed vertical line.

    Attributes:
        label: text in the legend; "" leaves the line out of the legend.
        x: position on the x axis.
        dash: matplotlib line style.
    """

    label: str
    x: float
    dash: str = "--"


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes:
        label: the quantity and its unit.
        low: lower limit; None to fit the data.
        high: upper limit; None to fit the data.
        log: whether the scale is logarithmic.
    """

    label: str
    low: float | None = None
    high: float | None = None
    log: bool = False


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart that can be drawn as SVG or PNG.

    Attributes:
        title: short title for screen readers.
        caption: one-sentence description.
        x: the x `Axis`.
        y: the y `Axis`.
        curves: list of `Curve`; colors repeat after ten.
        marks: list of `Mark`.
        filled: whether to fill the area under each curve, as in a histogram.
    """

    title: str
    caption: str
    x: Axis
    y: Axis
    curves: list
    marks: tuple = ()
    filled: bool = False

    def svg(self):
        """Returns the SVG text, starting at `<svg`, to embed in a page or save."""
        import matplotlib

        # Keep text as text, also a name with $, and derive element ids from the title
        # because several charts share a page.
        look = {"svg.fonttype": "none", "svg.hashsalt": self.title}
        look["text.parse_math"] = False
        unwanted = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with matplotlib.rc_context(look):
            text = io.StringIO()
            self.figure().savefig(text, format="svg", metadata=unwanted)
        drawn = text.getvalue()
        return drawn[drawn.index("<svg") :]

    def png(self):
        """Returns the chart as PNG bytes."""
        content = io.BytesIO()
        self.figure().savefig(content, format="png", dpi=150)
        return content.getvalue()

    def figure(self):
        """Draws the chart in a new `matplotlib.figure.Figure` and returns it."""
        # Imported here because it takes half a second.
        from matplotlib.figure import Figure

        figure = Figure(SIZE, layout="constrained")
        axes = figure.add_subplot()
        for color, curve in zip(itertools.cycle(COLORS), self.curves, strict=False):
            x, y = zip(*curve.points, strict=True)
            style = "steps-post" if curve.steps else "default"
            marker = "o" if len(x) == 1 else ""  # a one-point line is invisible
            axes.plot(x, y, color=color, label=curve.label, ds=style, marker=marker)
            if self.filled:
                step = "post" if curve.steps else None
                axes.fill_between(x, y, step=step, color=color, alpha=0.25, lw=0)
        for mark in self.marks:
            label = mark.label or "_unnamed"
            axes.axvline(mark.x, color=INK, lw=1, ls=mark.dash, label=label)
        for name, axis in (("x", self.x), ("y", self.y)):
            scale = "log" if axis.log else "linear"
            axes.set(**{f"{name}scale": scale, f"{name}label": axis.label})
            axes.set(**{f"{name}lim": (axis.low, axis.high)})
        axes.grid(color=GRID)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper left", ncols=2, frameon=False)
        return figure
