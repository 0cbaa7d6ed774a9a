"""Line charts with two logarithmic axes, drawn with matplotlib."""

import dataclasses

GRID = "#dddddd"


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        label: its name in the legend.
        points: list of (x, y), both positive.
        color: as matplotlib takes it.
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


def save(path, panels):
    """Draws panels side by side into a PNG.

    Args:
        path: the file.
        panels: list of `Panel`.
    """
    from matplotlib import ticker
    from matplotlib.figure import Figure

    thousands = ticker.EngFormatter(sep="")

    def text(value, _):
        return thousands(value) if value >= 1000 else f"{value:g}"

    figure = Figure((6.2 * len(panels), 4.6), layout="constrained")
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1)
        axes.set(xscale="log", yscale="log", title=panel.title)
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
        axes.grid(color=GRID)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(ticker.NullLocator())
            axis.set_major_formatter(text)
        for line in panel.lines:
            style = "--" if line.dashed else "o-"
            points = zip(*sorted(line.points), strict=True)
            axes.plot(*points, style, color=line.color, label=line.label)
        axes.legend()
    figure.savefig(path)
