"""The curves of a run, from its rows of figures, as charts."""

import dataclasses
import math

from plsc_tf.evaluation import png, svg

# More points than a chart has pixels are drawn as means of neighbours.
POINTS = 400


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart, whichever way it is drawn.

    Attributes:
        title: what it shows.
        caption: the same in a sentence.
        x: `svg.Axis`.
        y: `svg.Axis`.
        curves: list of `svg.Curve`.
    """

    title: str
    caption: str
    x: svg.Axis
    y: svg.Axis
    curves: list

    def as_svg(self):
        """The text of an SVG."""
        return svg.chart(self.title, self.x, self.y, self.curves)

    def as_png(self):
        """The bytes of a PNG."""
        return png.png_bytes(png.chart(self.title, self.x, self.y, self.curves))


def loss(rows):
    """The `Chart` of the loss, None where there is nothing to draw."""
    caption = "Loss, as in the lines of progress: means of the steps since the last."
    return _chart("Loss", caption, "loss", _named(rows, ["loss"]), logarithmic=True)


def all_of(rows):
    """The list of all charts of a run that have something to show.

    Args:
        rows: of `MetricsFiles`.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    verified = [n for n in names if n.startswith("verification/") and _is_rate(n)]
    trained = [n for n in names if "/" not in n and n.endswith("accuracy")]
    angles = [n for n in names if n.startswith("angles/")]
    found = [
        loss(rows),
        *_accuracies(rows, [*trained, *verified]),
        _chart(
            "Learning rate",
            "Learning rate of the optimizer.",
            "learning rate",
            _named(rows, ["learning_rate"]),
            bottom=0.0,
        ),
        _chart(
            "Throughput",
            "Images per second over all replicas, between lines of progress.",
            "images/s",
            _named(rows, ["images_per_second"]),
            bottom=0.0,
        ),
        _chart(
            "Loss scale",
            "Loss scale of mixed precision.",
            "loss scale",
            _named(rows, ["loss_scale"]),
            logarithmic=True,
        ),
        _chart(
            "Angles",
            "Mean angle of embeddings to their own class centre and the nearest other.",
            "degrees",
            _named(rows, angles),
        ),
    ]
    return [chart for chart in found if chart]


def _accuracies(rows, names):
    """Charts of accuracies, each of as many as there are colors."""
    most = len(svg.COLORS)
    for start in range(0, len(names), most):
        number = f", {start // most + 1}" if len(names) > most else ""
        yield _chart(
            f"Accuracy{number}",
            f"Training accuracy without margins, and verification accuracy{number}.",
            "accuracy",
            _named(rows, names[start : start + most]),
            bottom=0.0,
            top=1.0,
        )


def _is_rate(name):
    return name.endswith("_accuracy")


def _named(rows, names):
    """[(label, points)] of those names that have points."""
    found = []
    for name in names:
        points = [
            (float(row["step"]), float(row[name]))
            for row in rows
            if row.get(name) is not None and math.isfinite(row[name])
        ]
        if points:
            label = name.replace("verification/", "verification ")
            label = label.removeprefix("angles/")
            found.append((label.replace("_", " "), thinned(points)))
    return found


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


def _chart(title, caption, label, named, *, bottom=None, top=None, logarithmic=False):
    if not named:
        return None
    values = [y for _, points in named for _, y in points]
    steps = [x for _, points in named for x, _ in points]
    low, high = min(values), max(values)
    log = logarithmic and low > 0 and high / low > 20
    if log:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
    else:
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        low, high = low - margin if bottom is None else bottom, high + margin
        high = high if top is None else top
    first, last = min(steps), max(steps)
    x = svg.Axis("step", 0.0 if last else first - 1, last or first + 1)
    curves = [svg.Curve(name, points) for name, points in named]
    return Chart(title, caption, x, svg.Axis(label, low, high, log=log), curves)
