"""Charts of a run, drawn from its metrics rows."""

import math
from collections.abc import Sequence

from plsc_tf.evaluation.charts import COLORS, Axis, Chart, Curve, Mark

# Maximum number of points per curve; longer curves are averaged, because a chart has
# no more pixels.
POINTS = 400
# An axis is logarithmic if the ratio of its largest to its smallest value exceeds this.
DECADES = 20


# {title: (caption, label of the y axis, its lower limit or "log")}; "log" is for values
# that may differ by orders of magnitude.
_CHARTS = {
    "Loss": (
        "Loss: means of the steps since the last line of progress",
        "loss",
        "log",
    ),
    "Accuracy": (
        "Training accuracy without margins, and verification accuracy",
        "accuracy",
        None,
    ),
    "Learning rate": ("Learning rate of the optimizer", "learning rate", 0.0),
    "Throughput": (
        "Images per second over all replicas, between lines of progress",
        "images/s",
        0.0,
    ),
    "Loss scale": ("Loss scale of mixed precision", "loss scale", "log"),
    "Angles": (
        "Mean angle of embeddings to their own class center and the nearest other",
        "degrees",
        None,
    ),
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
    rates = [name for name in names if name.endswith("accuracy")]
    rates = [name for name in rates if "/" not in name] + [
        name for name in rates if name.startswith("verification/")
    ]
    # Split the accuracies into charts with at most one curve per color.
    groups = [rates[i : i + len(COLORS)] for i in range(0, len(rates), len(COLORS))]
    numbers = [f", {n}" if len(groups) > 1 else "" for n in range(1, len(groups) + 1)]
    charts = [
        loss(rows, resumed),
        *(
            _chart("Accuracy", rows, group, resumed, suffix)
            for group, suffix in zip(groups, numbers, strict=True)
        ),
        _chart("Learning rate", rows, ["learning_rate"], resumed),
        _chart("Throughput", rows, ["images_per_second"], resumed),
        _chart("Loss scale", rows, ["loss_scale"], resumed),
        _chart("Angles", rows, [n for n in names if n.startswith("angles/")], resumed),
    ]
    return [chart for chart in charts if chart]


def _chart(title, rows, names, resumed, suffix=""):
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
    return Chart(f"{title}{suffix}", f"{caption}{suffix}.", x, axis, curves, marks)


def thinned(points: list, most: int = POINTS) -> list:
    """Reduces a curve to at most `most` points by averaging consecutive points.

    Args:
        points: list of (x, y), in ascending order of x.
        most: maximum number of points.
    """
    if len(points) <= most:
        return points
    bounds = [round(i * len(points) / most) for i in range(most + 1)]
    groups = [points[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return [tuple(sum(c) / len(g) for c in zip(*g, strict=True)) for g in groups]
