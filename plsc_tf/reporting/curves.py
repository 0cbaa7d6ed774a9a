"""The curves of a run, from its rows of figures, as charts."""

import math
from collections.abc import Sequence

from plsc_tf.evaluation.charts import COLORS, Axis, Chart, Curve, Mark

# More points than a chart has pixels are drawn as means of neighbors.
POINTS = 400
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
DECADES = 20


def loss(rows: list[dict], resumed: Sequence[int] = ()) -> Chart | None:
    """The chart of the loss, None without points.

    Args:
        rows: of `MetricsFiles`.
        resumed: steps after which the run was resumed.
    """
    caption = "Loss: means of the steps since the last line of progress."
    curves = _named(rows, ["loss"])
    return _chart("Loss", caption, _spread("loss", curves), curves, resumed)


def all_of(rows: list[dict], resumed: Sequence[int] = ()) -> list[Chart]:
    """All charts of a run that have points.

    Args:
        rows: of `MetricsFiles`.
        resumed: steps after which the run was resumed.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    rates = [name for name in names if name.endswith("accuracy")]
    trained = [name for name in rates if "/" not in name]
    verified = [name for name in rates if name.startswith("verification/")]
    scale = _named(rows, ["loss_scale"])
    charts = [loss(rows, resumed), *_accuracies(rows, [*trained, *verified], resumed)]
    for title, caption, axis, chosen in (
        (
            "Learning rate",
            "Learning rate of the optimizer.",
            Axis("learning rate", low=0.0),
            ["learning_rate"],
        ),
        (
            "Throughput",
            "Images per second over all replicas, between lines of progress.",
            Axis("images/s", low=0.0),
            ["images_per_second"],
        ),
        (
            "Loss scale",
            "Loss scale of mixed precision.",
            _spread("loss scale", scale),
            ["loss_scale"],
        ),
        (
            "Angles",
            "Mean angle of embeddings to their own class center and the nearest other.",
            Axis("degrees"),
            [name for name in names if name.startswith("angles/")],
        ),
    ):
        charts.append(_chart(title, caption, axis, _named(rows, chosen), resumed))
    return [chart for chart in charts if chart]


def _accuracies(rows, names, resumed):
    """Charts of accuracies, at most one curve per color in each."""
    groups = [names[i : i + len(COLORS)] for i in range(0, len(names), len(COLORS))]
    for number, group in enumerate(groups, 1):
        suffix = f", {number}" if len(groups) > 1 else ""
        yield _chart(
            f"Accuracy{suffix}",
            f"Training accuracy without margins, and verification accuracy{suffix}.",
            Axis("accuracy"),
            _named(rows, group),
            resumed,
        )


def _named(rows, names):
    """The `Curve`s of those names that have points."""
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
    return curves


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


def _spread(label, curves):
    """An `Axis` that is logarithmic where values are orders of magnitude apart."""
    values = [y for curve in curves for _, y in curve.points]
    apart = bool(values) and min(values) > 0 and max(values) / min(values) > DECADES
    return Axis(label, log=apart)


def _chart(title, caption, y, curves, resumed):
    if not curves:
        return None
    last = max(x for curve in curves for x, _ in curve.points)
    shown = [step for step in resumed if 0 < step < last]
    marks = [Mark("" if i else "resumed", step) for i, step in enumerate(shown)]
    return Chart(title, caption, Axis("step", low=0.0), y, curves, marks)
