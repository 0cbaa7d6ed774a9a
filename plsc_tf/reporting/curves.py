"""The curves of a run, from its rows of figures, as charts."""

import math

from plsc_tf.evaluation.charts import COLORS, Axis, Chart, Curve, Mark

# More points than a chart has pixels are drawn as means of neighbours.
POINTS = 400
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
DECADES = 20


def loss(rows, resumed=()):
    """The `Chart` of the loss, None where there is nothing to draw.

    Args:
        rows: of `MetricsFiles`.
        resumed: steps after which the run was resumed.
    """
    caption = "Loss: means of the steps since the last line of progress."
    curves = _named(rows, ["loss"])
    return _chart("Loss", caption, _spread("loss", curves), curves, resumed)


def all_of(rows, resumed=()):
    """The list of all charts of a run that have something to show.

    Args:
        rows: of `MetricsFiles`.
        resumed: steps after which the run was resumed.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    verified = [n for n in names if n.startswith("verification/") and _is_rate(n)]
    trained = [n for n in names if "/" not in n and _is_rate(n)]
    angles = [n for n in names if n.startswith("angles/")]
    scale = _named(rows, ["loss_scale"])
    charts = [
        loss(rows, resumed),
        *_accuracies(rows, [*trained, *verified], resumed),
        _chart(
            "Learning rate",
            "Learning rate of the optimizer.",
            Axis("learning rate", low=0.0),
            _named(rows, ["learning_rate"]),
            resumed,
        ),
        _chart(
            "Throughput",
            "Images per second over all replicas, between lines of progress.",
            Axis("images/s", low=0.0),
            _named(rows, ["images_per_second"]),
            resumed,
        ),
        _chart(
            "Loss scale",
            "Loss scale of mixed precision.",
            _spread("loss scale", scale),
            scale,
            resumed,
        ),
        _chart(
            "Angles",
            "Mean angle of embeddings to their own class centre and the nearest other.",
            Axis("degrees"),
            _named(rows, angles),
            resumed,
        ),
    ]
    return [chart for chart in charts if chart]


def _accuracies(rows, names, resumed):
    """Charts of accuracies, each of as many as there are colors."""
    most = len(COLORS)
    for start in range(0, len(names), most):
        number = f", {start // most + 1}" if len(names) > most else ""
        yield _chart(
            f"Accuracy{number}",
            f"Training accuracy without margins, and verification accuracy{number}.",
            Axis("accuracy"),
            _named(rows, names[start : start + most]),
            resumed,
        )


def _is_rate(name):
    return name.endswith("accuracy")


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


def thinned(points, most=POINTS):
    """At most so many points; each is the mean of its neighbours.

    Args:
        points: list of (x, y), x ascending.
        most: how many.
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
