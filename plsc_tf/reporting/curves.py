"""The curves of a run, from its rows of figures, as charts."""

import math
from collections.abc import Sequence

from plsc_tf.evaluation.charts import COLORS, Axis, Chart, Curve, Mark

# More points than a chart has pixels are drawn as means of neighbors.
POINTS = 400
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
DECADES = 20


# {title: (caption, label of the axis, its lower end or "log")}; "log" is for values
# that are orders of magnitude apart.
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
    """The chart of the loss, None without points.

    Args:
        rows: of `MetricsFiles`.
        resumed: steps after which the run was resumed.
    """
    return _chart("Loss", rows, ["loss"], resumed)


def all_of(rows: list[dict], resumed: Sequence[int] = ()) -> list[Chart]:
    """All charts of a run that have points.

    Args:
        rows: of `MetricsFiles`.
        resumed: steps after which the run was resumed.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    rates = [name for name in names if name.endswith("accuracy")]
    rates = [name for name in rates if "/" not in name] + [
        name for name in rates if name.startswith("verification/")
    ]
    # At most one curve per color in each.
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
    """A chart of the curves of those names that have points; None if none has."""
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
    """Reduces a curve to at most `most` points, each the mean of its neighbors.

    Args:
        points: list of (x, y), x ascending.
        most: their largest number.
    """
    if len(points) <= most:
        return points
    bounds = [round(i * len(points) / most) for i in range(most + 1)]
    groups = [points[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return [tuple(sum(c) / len(g) for c in zip(*g, strict=True)) for g in groups]
