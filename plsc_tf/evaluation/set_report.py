"""Reports on evaluated sets: metrics, thresholds, curves and worst pairs."""

import dataclasses

import numpy as np

from plsc_tf.evaluation import bootstrap, calibration, identification, quality, roc
from plsc_tf.evaluation.charts import Chart
from plsc_tf.evaluation.report import MIN_ERRORS, Figure, Options, not_supported
from plsc_tf.evaluation.verification import FOLDS, PairScores, summarize

# The main metric of a set is the first of these that it has.
MAIN = ("accuracy", "rank_1", "top_1", "tar@far=1e-04", "eer")
# Number of histogram bins, ROC curve points and ranks of the CMC curve.
_BINS, _POINTS, _RANKS = 50, 240, 100
_TITLES = {"roc": "ROC", "cmc": "CMC", "histogram": "Score histogram"}
_TITLES["discard"] = "Error versus discard"
# Norms that differ by a smaller share are those of normalized embeddings.
_SAME_NORMS = 1e-3


@dataclasses.dataclass
class SetReport:
    """All results of one set.

    Attributes:
        name: the set's name.
        kind: "verification", "templates", "identification" or "classes".
        figures: {name: `Figure`}, in table order.
        counts: {name: count}.
        basis: a sentence on how identities are drawn for the confidence intervals.
        threshold: the calibrated threshold as JSON-serializable values; {} if none
            applies.
        curves: the charts' data as JSON-serializable values.
        charts: list of `charts.Chart`.
        worst: the worst pairs, [{"kind", "cosine", "left", "right", ...}],
            JSON-serializable.
        sha256: checksum of the set; "" if the set has no contents of its own.
        duplicates: {other set: counts of shared images, or a note}.
        images: {index in `worst`: (JPEG, JPEG)}.
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
    images: dict = dataclasses.field(default_factory=dict)

    @property
    def main(self) -> str:
        """The name of the main metric; "" if the set has none."""
        return next((name for name in MAIN if name in self.figures), "")

    @property
    def rate(self) -> str:
        """The threshold's target rate, such as "FAR=0.001"."""
        name = "far" if "far" in self.threshold else "fpir"
        return f"{name.upper()}={self.threshold[name]:g}" if self.threshold else ""

    def as_dict(self) -> dict:
        """Returns the set's JSON-serializable entry in card.json."""
        names = "kind sha256 counts threshold duplicates curves worst".split()
        figures = {name: figure.as_dict() for name, figure in self.figures.items()}
        plain = {name: getattr(self, name) for name in names}
        return plain | {"figures": figures, "intervals": self.basis}

    def _add_chart(self, name, values, caption, *content, **options):
        """Adds a chart of steps and stores its data as `curves[name]`."""
        self.curves[name] = values
        title = f"{_TITLES[name]} of {self.name}"
        self.charts.append(Chart(title, caption, *content, steps=True, **options))

    def add_roc(self, points: roc.Curve) -> None:
        """Adds the ROC curve."""
        low = max(1.0 / points.num_different, 1e-8)
        grid = np.logspace(np.log10(low), 0, _POINTS)
        tar = np.array([roc.operating_point(points, far).true_accepts for far in grid])
        self._add_chart(
            "roc",
            {"far": _rounded(grid), "tar": _rounded(tar)},
            "ROC curve: accepted same pairs over accepted different pairs.",
            ("false accept rate", "true accept rate"),
            ((low, 1.0), _limits(tar)),
            {self.name: np.column_stack([grid, tar])},
            log="x",
        )

    def add_histogram(self, scores: PairScores) -> None:
        """Adds the histograms of the cosines and marks the thresholds."""
        cosines = 1 - scores.distances / 2
        low = np.floor(cosines.min() * 10) / 10
        high = max(np.ceil(cosines.max() * 10) / 10, low + 0.1)
        edges = np.linspace(low, high, _BINS + 1)
        histogram, curves = {"cosine_edges": _rounded(edges)}, {}
        for label, kind in (("same", scores.same), ("different", ~scores.same)):
            counts, _ = np.histogram(cosines[kind], edges)
            share = counts / max(int(kind.sum()), 1)
            histogram[label] = _rounded(share)
            bars = np.append(share, share[-1])
            curves[f"{label} pairs"] = np.column_stack([edges, bars])
        at, marks = self.threshold, []
        if at.get("cosine") is not None:
            label = f"threshold at {self.rate}: {at['cosine']:.3f}"
            marks.append((label, at["cosine"], "--"))
        if "best_cosine" in at:
            label = f"most accurate threshold: {at['best_cosine']:.3f}"
            marks.append((label, at["best_cosine"], ":"))
        self._add_chart(
            "histogram",
            histogram,
            "Cosines of same and different pairs, as shares of all pairs of that kind.",
            ("cosine of the two embeddings", "share of the pairs"),
            ((low, high), (0.0, None)),
            curves,
            marks,
            filled=True,
        )

    def add_discards(self, scores: PairScores) -> None:
        """Adds the error-versus-discard curve, if embeddings differ in length."""
        norms, at, rate = scores.norms, self.threshold, self.rate
        if norms is None or np.ptp(norms) <= _SAME_NORMS * norms.max():
            return
        threshold = at["squared_l2"]
        if threshold is None:
            threshold, rate = at["best_squared_l2"], "the best accuracy"
        discarded, missed = quality.error_versus_discard(scores, threshold)
        curve = {"discarded": _rounded(discarded), "fnmr": _rounded(missed)}
        self._add_chart(
            "discard",
            curve | {"squared_l2": threshold},
            f"Same pairs that the threshold at {rate} rejects, after those with the "
            "shortest embeddings were discarded.",
            ("share of same pairs that are discarded", "false non-match rate"),
            ((0.0, 0.5), (0.0, None)),
            {
                "lowest quality first": np.column_stack([discarded, missed]),
                "at random": [(0.0, missed[0]), (0.5, missed[0])],
            },
        )

    def add_matches(self, search: identification.Search) -> None:
        """Adds the CMC curve if any probe has a mate."""
        rates = identification.rank_rates(search, range(1, _RANKS + 1))
        if not rates:
            return
        self._add_chart(
            "cmc",
            _rounded(rates.values()),
            "Share of mated probes whose identity ranks among the first k.",
            ("rank k", "rank-k identification rate"),
            ((1, max(len(rates), 2)), _limits([*rates.values()])),
            {self.name: [*rates.items()]},
        )


def of_pairs(
    name: str,
    scores: PairScores,
    identities: tuple,
    options: Options,
    kind: str = "verification",
) -> SetReport:
    """Builds the report on verification pairs, without images and checksum.

    Args:
        name: the set's name.
        scores: the pairs' `PairScores`.
        identities: (left, right, basis): the identities of both sides, int `[pairs]`,
            and a sentence on how the identities are known.
        options: the report's options.
        kind: "verification" uses the ten folds, "templates" doesn't.
    """
    folds = FOLDS if kind == "verification" else 0
    left, right, basis = identities
    statistics = roc.PairStatistics(scores, far=options.far, folds=folds)
    sides, values = np.stack([left, right]), statistics.values()
    figures = bootstrap.intervals(values, statistics.measure, sides, options)
    points = statistics.curve()
    calibrated = figures.pop(roc.CALIBRATED)
    threshold = _threshold(calibrated, points, options.far)
    if options.calibrate:
        costs, curve = _calibrate(scores, sides, options)
        figures, threshold = figures | costs, threshold | curve
    if folds:
        result = summarize(scores, folds)
        for figure, std in (("accuracy", result.std), ("val_at_far", result.val_std)):
            figures[figure] = dataclasses.replace(figures[figure], std=std)
        best = result.threshold
        behind = roc.FAR_TARGET * (1 - 1 / folds) * points.num_different
        # Interpolation defines val@FAR for any number of false pairs.
        if behind < MIN_ERRORS:
            missing = not_supported("false pairs", behind)
            note = f"{missing.note}; insightface's interpolation gives "
            note += figures["val_at_far"].text()
            figures["val_at_far"] = dataclasses.replace(missing, note=note)
        threshold |= {"best_squared_l2": best, "best_cosine": 1 - best / 2}
    counts = {
        "pairs": len(scores.same),
        "same": len(scores.same) - points.num_different,
        "different": points.num_different,
        "identities": len(np.unique(sides)),
    }
    report = SetReport(name, kind, figures, counts, basis, threshold)
    report.add_roc(points)
    report.add_histogram(scores)
    report.add_discards(scores)
    return report


def of_search(
    name: str, search: identification.Search, identities: np.ndarray, options: Options
) -> SetReport:
    """Builds the report on a 1:N identification.

    Args:
        name: the set's name.
        search: the result of the search.
        identities: `[probes]`, identity of each probe.
        options: the report's options.
    """
    num_open = int(np.count_nonzero(~search.mated))

    def measure(weights=None):
        ranks = identification.rank_rates(search, weights=weights)
        rates = identification.tpir_at_fpir(search, weights=weights)
        tpirs = {f"tpir@fpir={rate:.0e}": tpir for rate, (tpir, _) in rates.items()}
        return {f"rank_{k}": value for k, value in ranks.items()} | tpirs

    values = measure() or {"rank_1": Figure(None, note="no probe is in the gallery")}
    for rate in identification.FALSE_POSITIVE_RATES:
        missing = not_supported("false positives", rate * num_open)
        values.setdefault(f"tpir@fpir={rate:.0e}", missing)
    figures = bootstrap.intervals(values, measure, identities, options)
    at = identification.tpir_at_fpir(search, [options.far])
    tpir, cosine = at.get(options.far, (None, None))
    threshold = {"fpir": options.far, "cosine": cosine, "squared_l2": None}
    if at:
        threshold |= {"squared_l2": 2 - 2 * cosine, "tpir": tpir}
    else:
        threshold["note"] = f"{num_open} probes without a mate are too few"
    counts = {
        "gallery identities": search.num_identities,
        "probes": len(search.mated),
        "probes with a mate": len(search.mated) - num_open,
        "probes without": num_open,
    }
    basis = "identities of the probes are drawn; the gallery stays as it is"
    report = SetReport(name, "identification", figures, counts, basis, threshold)
    report.add_matches(search)
    return report


def of_classes(
    name: str, ranks: np.ndarray, labels: np.ndarray, options: Options
) -> SetReport:
    """Builds the report on a closed set: the accuracy on the trained classes.

    Args:
        name: the set's name.
        ranks: int `[images]`, 1 + the number of other classes that score at least as
            high as the true class.
        labels: int `[images]`.
        options: the report's options.
    """

    def measure(weights=None):
        if weights is not None and not weights.any():
            return {}
        return {
            f"top_{k}": float(np.average(ranks <= k, weights=weights)) for k in (1, 5)
        }

    figures = bootstrap.intervals(measure(), measure, labels, options)
    counts = {"images": len(labels), "classes": len(np.unique(labels))}
    return SetReport(name, "classes", figures, counts, basis="classes are drawn")


def _calibrate(scores, sides, options):
    """Returns (figures on the calibration, {"calibration"} for the threshold)."""
    cosines, same, method = 1 - scores.distances / 2, scores.same, options.calibrate
    try:
        found = calibration.fit(cosines, same, method, options.prior)
        llrs = calibration.held_out(cosines, same, sides, method)
    except ValueError as error:
        return {"cllr": Figure(None, note=str(error))}, {}

    def measure(weights=None):
        return {"cllr": calibration.cllr(llrs, same, weights)}

    figures = bootstrap.intervals(measure(), measure, sides, options)
    figures["min_cllr"] = Figure(calibration.min_cllr(cosines, same))
    return figures, {"calibration": dataclasses.asdict(found)}


def _threshold(calibrated, points, far):
    """Returns the threshold, as squared distance and cosine, JSON-serializable."""
    scales = {"squared_l2": calibrated, "cosine": calibrated.as_cosine()}
    threshold = {"far": far} | {scale: one.value for scale, one in scales.items()}
    if calibrated.value is None:
        fewest = MIN_ERRORS / points.num_different
        note = (
            f"{calibrated.note}. {points.num_different} different pairs are enough for "
            f"FAR={fewest:.2g} or more"
        )
        return threshold | {"note": note}
    at = roc.operating_point(points, far)
    threshold |= {"far_measured": at.false_accepts, "tar": at.true_accepts}
    if calibrated.low is not None:
        for scale, one in scales.items():
            threshold |= {f"{scale}_low": one.low, f"{scale}_high": one.high}
    return threshold


def _limits(rates):
    """Returns axis limits for rates: from the lowest rate, rounded down, to 1."""
    return min(np.floor(float(np.min(rates)) * 10) / 10, 0.9), 1.0


def _rounded(values):
    return [float(f"{value:.6g}") for value in values]
