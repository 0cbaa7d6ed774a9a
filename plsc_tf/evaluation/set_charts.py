"""Charts of a set's curves, from the data in card.json, for one model or several."""

import numpy as np

from plsc_tf.evaluation.charts import Chart
from plsc_tf.requirements import require

# Names of the data's lists on the axes, where they are not abbreviations.
_LABELS = {
    "rank": "rank k",
    "rate": "share of the mated probes",
    "no threshold": "FNIR",
    "discarded": "share of same pairs that are discarded",
    "cosine_edges": "cosine of the two embeddings",
    "same": "share of the pairs",
}
# Largest number in a curve of a card from elsewhere that can be drawn.
_LARGEST = 1e9


def all_of(report) -> dict[str, Chart]:
    """Returns {kind: chart} of all curves of a `SetReport`.

    Other models in its `compared` are drawn beside its own, except in charts with
    several curves of a model.
    """
    return {kind: _chart(kind, report) for kind in report.curves}


def check(entry: dict) -> None:
    """Raises one of several errors if a set of a card.json has no valid curves."""
    for curve in {**entry["curves"]}.values():
        for points in _curves(curve)[1].values():
            fits = points.ndim == 2 and len(points.T) > 1  # noqa: PLR2004
            require(fits and not (np.abs(points) > _LARGEST).any(), "Not a curve")


def _chart(kind, report):
    x, curves = _curves(report.curves[kind])
    y = next(iter(curves))
    if len(curves) == 1:
        curves = {report.name: curves[y]}
        for model, entry in report.compared.items():
            other = entry["curves"].get(kind)
            if other and y in (found := _curves(other)[1]):
                curves[model] = found[y]
    rates = np.concatenate([one[:, 1:].ravel() for one in curves.values()])
    filled = kind == "histogram"
    return Chart(
        f"{kind if filled else kind.upper()} of {report.name}",
        "",  # the page has captions
        tuple(_LABELS.get(name, name.upper()) for name in (x, y)),
        ((None, None), _limits(kind, rates[np.isfinite(rates)])),
        curves,
        _thresholds(report) if filled else (),
        log="x" if kind == "roc" else "",
        steps=True,
        filled=filled,
        deviates=kind == "det",
    )


def _curves(data):
    """Returns (name of x, {name of y: `[points, 2]` or, with an interval, 4])."""
    if isinstance(data, list):
        data = {"rank": list(range(1, len(data) + 1)), "rate": data}
    x, *names = (name for name, one in data.items() if isinstance(one, list))
    curves = {}
    for name in names:
        if not name.endswith(("_low", "_high")):
            columns = (data.get(f"{name}{end}") for end in ("", "_low", "_high"))
            # The last bar of a histogram ends at one more x. None becomes NaN.
            full = [[*one, one[-1]][: len(data[x])] for one in columns if one]
            curves[name] = np.array([data[x], *full], float).T
    return x, curves


def _limits(kind, rates):
    """Returns the limits of the axis of y."""
    if kind in ("roc", "cmc"):
        return np.floor(rates.min(initial=0.9) * 10) / 10, 1.0
    if kind != "det":
        return 0.0, None
    rates = rates[rates > 0]  # the deviate of 0 is infinite
    return rates.min(initial=0.1) / 1.2, min(1.2 * rates.max(initial=0.2), 0.95)


def _thresholds(report):
    """Returns the marks of a histogram."""
    names = {"": f"threshold at {report.rate}", "best_": "most accurate threshold"}
    places = {name: report.threshold.get(f"{key}cosine") for key, name in names.items()}
    return [
        (f"{name}: {place:.3f}", place, dash)
        for (name, place), dash in zip(places.items(), ("--", ":"), strict=True)
        if place is not None
    ]
