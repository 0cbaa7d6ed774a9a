"""Charts of curves and histograms, drawn with matplotlib as SVG or PNG."""

import dataclasses
import io
import statistics
from collections.abc import Sequence

import numpy as np

INK, GRID = "#222222", "#e2e2e2"
# Inches; small enough to keep the text legible on a narrow page.
SIZE = (5.2, 3.5)
# Rates that are marked on axes of normal deviates.
_RATES = (1e-8, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95)


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart that can be drawn as SVG or PNG.

    Attributes:
        title: short title for screen readers.
        caption: one-sentence description.
        labels: the quantities and units of x and y.
        limits: (lower, upper) of x and of y; None fits the data.
        curves: `{label: (x, y) of each point}`, in ascending order of x, or (x, y, low,
            high) with the ends of an interval; colors repeat after ten.
        marks: dashed vertical lines, (label, x, line style); without a label, a line is
            not in the legend.
        log: "x" or "y", the axis with a logarithmic scale; "" for none.
        steps: whether y keeps its value until the next x.
        filled: whether to fill the area under curves of steps, as in a histogram.
        deviates: whether both axes show rates as normal deviates.
    """

    title: str
    caption: str
    labels: tuple[str, str]
    limits: tuple
    curves: dict
    marks: Sequence = ()
    log: str = ""
    steps: bool = False
    filled: bool = False
    deviates: bool = False

    def svg(self):
        """Returns the SVG text, starting at `<svg`, to embed in a page or save."""
        import matplotlib

        # Keep text as text, and derive element ids from the title because several
        # charts share a page.
        look = {"svg.fonttype": "none", "svg.hashsalt": self.title}
        facts = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        facts["Title"] = self.title  # read out by screen readers
        with matplotlib.rc_context(look):
            text = io.StringIO()
            self._save(text, format="svg", metadata=facts)
        drawn = text.getvalue()
        return drawn[drawn.index("<svg") :]

    def png(self):
        """Returns the chart as PNG bytes."""
        content = io.BytesIO()
        self._save(content, format="png", dpi=150)
        return content.getvalue()

    def _save(self, file, **options):
        import matplotlib

        # A name may have a $.
        with matplotlib.rc_context({"text.parse_math": False}):
            self.figure().savefig(file, **options)

    def figure(self):
        """Draws the chart in a new `matplotlib.figure.Figure` and returns it."""
        # Imported here because it takes half a second.
        from matplotlib.figure import Figure

        figure = Figure(SIZE, layout="constrained")
        axes = figure.add_subplot(xmargin=0)
        style = "steps-post" if self.steps else "default"
        for label, points in self.curves.items():
            x, y, *ends = zip(*points, strict=True)
            marker = "o" if len(x) == 1 else ""  # a one-point line is invisible
            (line,) = axes.plot(x, y, label=label, ds=style, marker=marker)
            if self.filled or ends:
                color, step = line.get_color(), "post" if self.steps else None
                area = ends or [y]
                axes.fill_between(x, *area, step=step, color=color, alpha=0.25, lw=0)
        for label, place, dash in self.marks:
            axes.axvline(place, color=INK, lw=1, ls=dash, label=label or "_unnamed")
        if self.log:
            axes.set(**{f"{self.log}scale": "log"})
            axis = getattr(axes, f"{self.log}axis")
            # Matplotlib's own labels are formulas, which are not parsed.
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter("")
        axes.set(xlabel=self.labels[0], ylabel=self.labels[1])
        if self.deviates:
            _scale_by_deviates(axes)
        axes.set(xlim=self.limits[0], ylim=self.limits[1])
        axes.grid(color=GRID)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper left", ncols=2, frameon=False)
        return figure


def _scale_by_deviates(axes):
    """Scales both axes of rates by normal deviates, as in a DET curve."""
    from matplotlib.scale import FuncScale
    from matplotlib.ticker import FixedLocator

    normal = statistics.NormalDist()
    functions = (lambda p: normal.inv_cdf(min(max(p, 1e-9), 1 - 1e-9))), normal.cdf
    functions = [np.vectorize(one, otypes=[float]) for one in functions]
    scale = FuncScale(None, functions)
    axes.set(xscale=scale, yscale=scale)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(_RATES))
        axis.set_major_formatter("{x:g}")
