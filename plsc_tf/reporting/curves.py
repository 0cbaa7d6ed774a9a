"""Charts of a run, drawn from its metrics rows."""

import math
import re
from collections.abc import Sequence

import numpy as np

from plsc_tf.evaluation.charts import Chart

# Most curves of a chart: the metrics of a run from elsewhere may have any names.
_MOST_CURVES = 50
# Maximum number of points per curve; longer curves are averaged, because a chart has
# no more pixels.
POINTS = 400
# An axis is logarithmic if the ratio of its largest to its smallest value exceeds this.
DECADES = 20


# {title and label of the y axis: (names of metrics, caption, lower limit or "log")};
# "log" is for values that may differ by orders of magnitude.
_CHARTS = {
    "Loss": ("loss", "Mean loss since the last progress line", "log"),
    "Accuracy": ("(verification/)?[^/]*accuracy", "Training and verification", None),
    "Learning rate": ("learning_rate", "Learning rate of the optimizer", 0.0),
    "Images per second": ("images_per_second", "Throughput of all replicas", 0.0),
    "Loss scale": ("loss_scale", "Loss scale of mixed precision", "log"),
    "Degrees": ("angles/.*", "Mean angle to the own and nearest other center", None),
}


def all_of(rows: list[dict], resumed: Sequence[int] = ()) -> list[Chart]:
    """Returns all charts of a run that have points; see `chart`."""
    return list(filter(None, (chart(title, rows, resumed) for title in _CHARTS)))


def chart(title: str, rows: list[dict], resumed: Sequence[int] = ()) -> Chart | None:
    """Returns a chart of a run, or None if there are no points.

    Args:
        title: a key of `_CHARTS`, such as "Loss".
        rows: `MetricsFiles.rows`.
        resumed: steps after which the run was resumed.
    """
    pattern, caption, low = _CHARTS[title]
    names = dict.fromkeys(name for row in rows for name in row)
    curves = {}
    for name in [*filter(re.compile(pattern).fullmatch, names)][:_MOST_CURVES]:
        known = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        points = [(float(x), float(y)) for x, y in known if math.isfinite(y)]
        if points:
            label = name.removeprefix("angles/").replace("/", " ").replace("_", " ")
            groups = np.array_split(np.array(points), min(len(points), POINTS))
            curves[label] = [tuple(group.mean(axis=0).tolist()) for group in groups]
    if not curves:
        return None
    x, y = np.concatenate([np.array(points) for points in curves.values()]).T
    apart = low == "log" and y.min() > 0 and y.max() / y.min() > DECADES
    bottom = None if low == "log" else low
    shown = [step for step in resumed if 0 < step < x.max()][-_MOST_CURVES:]
    marks = [("" if i else "resumed", step, "--") for i, step in enumerate(shown)]
    labels, limits = ("step", title.lower()), ((0.0, None), (bottom, None))
    log = "y" if apart else ""
    return Chart(title, f"{caption}.", labels, limits, curves, marks, log)
