"""What is told about one evaluated set: figures, threshold, curves, worst pairs."""

import dataclasses

import numpy as np

from plsc_tf.evaluation import (
    bootstrap,
    identification,
    pair_statistics,
    report_charts,
    roc,
)
from plsc_tf.evaluation.bootstrap import Resampling
from plsc_tf.evaluation.figures import Figure, not_supported
from plsc_tf.evaluation.verification import summarise


@dataclasses.dataclass(frozen=True)
class Options:
    """How to report.

    Attributes:
        resampling: the draws behind confidence intervals.
        far: false accept rate that the threshold is calibrated at.
    """

    resampling: Resampling = Resampling(samples=0)
    far: float = 1e-3


@dataclasses.dataclass
class SetReport:
    """All that is known about one set.

    Attributes:
        name: of the set.
        kind: "verification", "templates", "identification" or "classes".
        figures: {name: `Figure`}, in the order of a table.
        counts: {what: how many}.
        basis: what the confidence intervals rest on, a sentence.
        threshold: the calibrated threshold as plain values; {} where none applies.
        curves: plain values behind the charts.
        charts: list of `charts.Chart`.
        worst: [{"kind", "cosine", "left", "right", ...}], pairs, plain values.
        sha256: of the set; "" where it has no contents of its own.
        duplicates: [sentences or counts], filled in by who knows the data.
        pictures: {row of `worst`: (JPEG, JPEG)}.
    """

    name: str
    kind: str
    figures: dict
    counts: dict
    basis: str = ""
    threshold: dict = dataclasses.field(default_factory=dict)
    curves: dict = dataclasses.field(default_factory=dict)
    charts: list = dataclasses.field(default_factory=list)
    worst: list = dataclasses.field(default_factory=list)
    sha256: str = ""
    duplicates: dict = dataclasses.field(default_factory=dict)
    pictures: dict = dataclasses.field(default_factory=dict)

    def as_dict(self):
        """Plain values for card.json."""
        return {
            "kind": self.kind,
            "sha256": self.sha256,
            "counts": self.counts,
            "figures": {name: f.as_dict() for name, f in self.figures.items()},
            "intervals": self.basis,
            "threshold": self.threshold,
            "duplicates": self.duplicates,
            "curves": self.curves,
            "worst": self.worst,
        }


def of_pairs(name, scores, identities, options, kind="verification"):
    """The report of verification pairs.

    Args:
        name: of the set.
        scores: `PairScores`.
        identities: (left, right, basis): int [pairs] numbers of the identities, and
            a sentence on how they are known.
        options: `Options`.
        kind: "verification": with the ten folds; "templates": without.

    Returns:
        A `SetReport` without pictures and checksum.
    """
    folds = 10 if kind == "verification" else 0
    left, right, basis = identities
    statistics = pair_statistics.PairStatistics(scores, far=options.far, folds=folds)
    result = summarise(scores) if folds else None
    num_identities = int(max(left.max(), right.max())) + 1
    figures = bootstrap.intervals(
        statistics.values(result),
        statistics.measure,
        pair_statistics.pair_weights(left, right),
        num_identities,
        options.resampling,
    )
    if folds:
        figures[pair_statistics.ACCURACY] = dataclasses.replace(
            figures[pair_statistics.ACCURACY], std=result.std
        )
        figures[pair_statistics.VAL] = _remarked(
            dataclasses.replace(figures[pair_statistics.VAL], std=result.val_std),
            result.far_target * 0.9 * np.count_nonzero(~scores.same),
        )
    calibrated = figures.pop(pair_statistics.CALIBRATED)
    points = statistics.curve()
    report = SetReport(
        name,
        kind,
        figures,
        {
            "pairs": len(scores.same),
            "same": int(np.count_nonzero(scores.same)),
            "different": points.num_different,
            "identities": num_identities,
        },
        basis=basis,
        threshold=_threshold(calibrated, points, options.far),
    )
    if folds:
        best = result.threshold
        report.threshold["best_squared_l2"] = best
        report.threshold["best_cosine"] = 1 - best / 2
    report_charts.add_roc(report, points)
    report_charts.add_histogram(report, scores)
    return report


def of_search(name, found, identities, options):
    """The report of a 1:N identification.

    Args:
        name: of the set.
        found: `identification.Search`.
        identities: int [probes], numbers of the probes' identities.
        options: `Options`.

    Returns:
        A `SetReport`.
    """
    num_open = int(np.count_nonzero(~found.mated))

    def measure(weights=None):
        ranks = identification.rank_rates(found, weights=weights)
        rates = identification.tpir_at_fpir(found, weights=weights)
        return {f"rank_{k}": value for k, value in ranks.items()} | {
            _tpir_name(rate): value for rate, (value, _) in rates.items()
        }

    values = measure() or {"rank_1": Figure(None, note="no probe is in the gallery")}
    for rate in identification.FALSE_POSITIVE_RATES:
        values.setdefault(
            _tpir_name(rate),
            not_supported("false positives", rate * num_open, roc.MIN_FALSE_ACCEPTS),
        )
    numbers = np.unique(identities, return_inverse=True)[1]
    figures = bootstrap.intervals(
        values,
        measure,
        lambda counts: counts[numbers],
        int(numbers.max()) + 1,
        options.resampling,
    )
    report = SetReport(
        name,
        "identification",
        figures,
        {
            "gallery identities": found.num_identities,
            "probes": len(found.mated),
            "probes with a mate": len(found.mated) - num_open,
            "probes without": num_open,
        },
        basis="identities of the probes are drawn; the gallery stays as it is",
        threshold=_search_threshold(found, options.far),
    )
    report_charts.add_matches(report, found)
    return report


def of_classes(name, ranks, labels, options, top=(1, 5)):
    """The report of a closed set: the accuracy on the classes that were trained.

    Args:
        name: of the set.
        ranks: int [images], 1 + how many classes score higher than the own one.
        labels: int [images].
        options: `Options`.
        top: values of k.

    Returns:
        A `SetReport`.
    """

    def measure(weights=None):
        return {f"top_{k}": float(np.average(ranks <= k, weights=weights)) for k in top}

    present, numbers = np.unique(labels, return_inverse=True)
    figures = bootstrap.intervals(
        measure(),
        lambda weights: measure(weights) if weights.sum() else {},
        lambda counts: counts[numbers],
        len(present),
        options.resampling,
    )
    counts = {"images": len(labels), "classes": len(present)}
    return SetReport(name, "classes", figures, counts, basis="classes are drawn")


def _tpir_name(rate):
    return f"tpir@fpir={rate:.0e}"


def _remarked(figure, behind):
    """val@FAR is defined by interpolation, however few false pairs stand behind it."""
    if behind >= roc.MIN_FALSE_ACCEPTS:
        return figure
    missing = not_supported("false pairs", behind, roc.MIN_FALSE_ACCEPTS)
    text = f"{figure.value:.5f} ± {figure.std:.5f}"
    note = f"{missing.note}; insightface's interpolation gives {text}"
    return dataclasses.replace(missing, note=note)


def _threshold(calibrated, points, far):
    """The calibrated threshold as plain values, as squared distance and cosine."""
    found = {"far": far, "squared_l2": calibrated.value, "cosine": None}
    if calibrated.value is None:
        fewest = roc.MIN_FALSE_ACCEPTS / points.num_different
        found["note"] = (
            f"{calibrated.note}; {points.num_different} pairs of two identities "
            f"support FAR {fewest:.2g} or more"
        )
        return found
    at = roc.operating_point(points, far)
    found["cosine"] = 1 - calibrated.value / 2
    found |= {"far_measured": at.false_accepts, "tar": at.true_accepts}
    if calibrated.low is not None:
        found |= {
            "squared_l2_low": calibrated.low,
            "squared_l2_high": calibrated.high,
            "cosine_low": 1 - calibrated.high / 2,
            "cosine_high": 1 - calibrated.low / 2,
        }
    return found


def _search_threshold(found, rate):
    at = identification.tpir_at_fpir(found, [rate]).get(rate)
    result = {"fpir": rate, "cosine": at[1] if at else None}
    if at:
        return result | {"squared_l2": 2 - 2 * at[1], "tpir": at[0]}
    num_open = int(np.count_nonzero(~found.mated))
    note = f"{num_open} probes without a mate are too few for this rate"
    return result | {"squared_l2": None, "note": note}
