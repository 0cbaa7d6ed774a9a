"""Charts of a run, drawn from its metrics rows."""

import math
import re
from collections.abc import Sequence

import numpy as np

from plsc_tf.evaluation.charts import Axis, Chart, Curve, Mark

# Maximum number of points per curve; longer curves are averaged, because a chart has
# no more pixels.
POINTS = 400
# An axis is logarithmic if the ratio of its largest to its smallest value exceeds this.
DECADES = 20


# {title: (caption, label of the y axis, its lower limit or "log")}; "log" is for values
# that may differ by orders of magnitude.
_CHARTS = {
    "Loss": ("Mean loss since the last progress line", "loss", "log"),
    "Accuracy": ("Training accuracy, verification accuracy", "accuracy", None),
    "Learning rate": ("Learning rate of the optimizer", "learning rate", 0.0),
    "Throughput": ("Images per second on all replicas", "images/s", 0.0),
    "Loss scale": ("Loss scale of mixed precision", "loss scale", "log"),
    "Angles": ("Mean angle to the own and the nearest other center", "degrees", None),
}


def loss(rows: list[dict], resumed: Sequence[int] = ()) -> Chart | None:
    """Returns the chart of the loss, or None if there are no points.

    Args:
        rows: `MetricsFiles.rows`.
        resumed: steps after which the run was resumed.
    """
    return _chart("Loss", rows, ["loss"], resumed)


def all_of(rows: list[dict], resumed: Sequence[int] = ()) -> list[Chart]:
    """Returns all charts of a run that have points.

    Args:
        rows: `MetricsFiles.rows`.
        resumed: steps after which the run was resumed.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    rates = [n for n in names if re.fullmatch(r"(verification/)?[^/]*accuracy", n)]
    rates.sort(key=lambda name: "/" in name)  # the training accuracy comes first
    charts = [
        loss(rows, resumed),
        _chart("Accuracy", rows, rates, resumed),
        _chart("Learning rate", rows, ["learning_rate"], resumed),
        _chart("Throughput", rows, ["images_per_second"], resumed),
        _chart("Loss scale", rows, ["loss_scale"], resumed),
        _chart("Angles", rows, [n for n in names if n.startswith("angles/")], resumed),
    ]
    return [chart for chart in charts if chart]


def _chart(title, rows, names, resumed):
    """Returns a chart of the named metrics that have points; None if none have any."""
    curves = []
    for name in names:
        points = [
            (float(row["step"]), float(row[name]))
            for row in rows
            if row.get(name) is not None and math.isfinite(row[name])
        ]
        if points:
            label = name.replace("verification/", "verification ")
            label = label.removeprefix("angles/").replace("_", " ")
            curves.append(Curve(label, thinned(points)))
    if not curves:
        return None
    caption, label, low = _CHARTS[title]
    axis = Axis(label, low=low)
    if low == "log":
        values = [y for curve in curves for _, y in curve.points]
        apart = min(values) > 0 and max(values) / min(values) > DECADES
        axis = Axis(label, log=apart)
    last = max(x for curve in curves for x, _ in curve.points)
    shown = [step for step in resumed if 0 < step < last]
    marks = [Mark("" if i else "resumed", step) for i, step in enumerate(shown)]
    x = Axis("step", low=0.0)
    return Chart(title, f"{caption}.", x, axis, curves, marks)


def thinned(points: list, most: int = POINTS) -> list:
    """Reduces a curve to at most `most` points by averaging consecutive points.

    Args:
        points: list of (x, y), in ascending order of x.
        most: maximum number of points.
    """
    if len(points) <= most:
        return points
    groups = np.array_split(np.array(points), most)
    return [tuple(group.mean(axis=0).tolist()) for group in groups]
