"""The charts of a report, and the plain values behind them."""

import numpy as np

from plsc_tf.evaluation import identification
from plsc_tf.evaluation.charts import Axis, Chart, Curve, Mark

_BINS = 50
_CURVE_POINTS = 240


def add_roc(report, points):
    """Adds the ROC curve of a `roc.Curve`."""
    low = max(1.0 / points.num_different, 1e-8)
    grid = np.logspace(np.log10(low), 0, _CURVE_POINTS)
    last = np.searchsorted(points.false_accepts, grid * (1 + 1e-9), side="right") - 1
    tar = points.true_accepts[last]
    report.curves["roc"] = {"far": _rounded(grid), "tar": _rounded(tar)}
    curve = list(zip(grid.tolist(), tar.tolist(), strict=True))
    report.charts.append(
        Chart(
            f"ROC of {report.name}",
            "Receiver operating characteristic: same pairs accepted, over the share "
            "of different pairs accepted with them.",
            Axis("false accept rate", low, 1.0, log=True),
            Axis("true accept rate", *_upper(tar)),
            [Curve(report.name, curve, steps=True)],
        )
    )


def add_histogram(report, scores):
    """Adds the histograms of the cosines, with the thresholds of the report."""
    cosines = 1 - scores.distances / 2
    edges = np.linspace(
        np.floor(cosines.min() * 10) / 10, np.ceil(cosines.max() * 10) / 10, _BINS + 1
    )
    if edges[0] == edges[-1]:
        edges = np.linspace(edges[0] - 0.1, edges[0] + 0.1, _BINS + 1)
    shares = {}
    for label, kind in (("same", scores.same), ("different", ~scores.same)):
        counts, _ = np.histogram(cosines[kind], edges)
        shares[label] = counts / max(int(kind.sum()), 1)
    report.curves["histogram"] = {
        "cosine_edges": _rounded(edges),
        **{label: _rounded(share) for label, share in shares.items()},
    }
    top = max(float(share.max()) for share in shares.values()) * 1.05
    curves = [
        Curve(f"{label} pairs", _bars(edges, share), steps=True)
        for label, share in shares.items()
    ]
    report.charts.append(
        Chart(
            f"Score histogram of {report.name}",
            "Cosines of same and of different pairs, each as a share of its kind.",
            Axis("cosine of the two embeddings", edges[0], edges[-1]),
            Axis("share of the pairs", 0.0, top),
            curves,
            list(_marks(report.threshold)),
            filled=True,
        )
    )


def _bars(edges, share):
    heights = np.append(share, share[-1])
    return list(zip(edges.tolist(), heights.tolist(), strict=True))


def _marks(threshold):
    if threshold.get("cosine") is not None:
        text = f"threshold at FAR {threshold['far']:g}: {threshold['cosine']:.3f}"
        yield Mark(text, threshold["cosine"])
    if "best_cosine" in threshold:
        best = threshold["best_cosine"]
        yield Mark(f"most accurate threshold: {best:.3f}", best, dash=":")


def add_matches(report, search):
    """Adds the CMC curve of an `identification.Search` with mated probes."""
    matches = identification.cumulative_matches(search)
    if not search.mated.any():
        return
    report.curves["cmc"] = _rounded(matches)
    points = list(enumerate(matches.tolist(), 1))
    report.charts.append(
        Chart(
            f"CMC of {report.name}",
            "Cumulative matches: probes with a mate whose mate is among the first k "
            "identities of the gallery.",
            Axis("rank k", 1, max(len(matches), 2)),
            Axis("rank-k identification rate", *_upper(matches)),
            [Curve(report.name, points, steps=True)],
        )
    )


def _upper(rates):
    """The bounds of an axis of rates: from the lowest, rounded down, to 1."""
    return min(np.floor(float(np.min(rates)) * 10) / 10, 0.9), 1.0


def _rounded(values):
    return [float(f"{value:.6g}") for value in values]
