"""Reports on evaluated sets: metrics, thresholds, curves and worst pairs."""

import dataclasses

import numpy as np

from plsc_tf.evaluation import bootstrap, calibration, identification, quality, roc
from plsc_tf.evaluation.groups import rates_of_groups
from plsc_tf.evaluation.report import MIN_ERRORS, Figure, Options, not_supported
from plsc_tf.evaluation.verification import FOLDS, PairScores, People, summarize

# The main metric of a set is the first of these that it has.
MAIN = ("accuracy", "rank_1", "top_1", "tar@far=1e-04", "eer")
# Number of histogram bins, ROC curve points and ranks of the CMC curve.
_BINS, _POINTS, _RANKS = 50, 240, 100
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
        curves: the charts' data as JSON-serializable values, see `set_charts`.
        worst: the worst pairs, [{"kind", "cosine", "left", "right", ...}],
            JSON-serializable.
        sha256: checksum of the set; "" if the set has no contents of its own.
        duplicates: {other set: counts of shared images, or a note}.
        leaks: the people who are probably training classes, see `leaks.find`.
        groups: the error rates of groups of people, see `groups.rates_of_groups`.
        images: {index in `worst`: (JPEG, JPEG)}.
        compared: {name: the entry of this set in another model's card.json}.
    """

    name: str
    kind: str
    figures: dict
    counts: dict
    basis: str = ""
    threshold: dict = dataclasses.field(default_factory=dict)
    curves: dict = dataclasses.field(default_factory=dict)
    worst: list = dataclasses.field(default_factory=list)
    sha256: str = ""
    duplicates: dict = dataclasses.field(default_factory=dict)
    leaks: dict = dataclasses.field(default_factory=dict)
    groups: dict = dataclasses.field(default_factory=dict)
    images: dict = dataclasses.field(default_factory=dict)
    compared: dict = dataclasses.field(default_factory=dict)

    @property
    def main(self) -> str:
        """The name of the main metric; "" if the set has none."""
        return next((name for name in MAIN if name in self.figures), "")

    @property
    def rate(self) -> str:
        """The threshold's target rate, such as "FAR=0.001"."""
        name = "far" if "far" in self.threshold else "fpir"
        return f"{name.upper()}={self.threshold[name]:g}" if self.threshold else ""

    @property
    def limit(self) -> float:
        """The threshold, or the most accurate one if the set is too small for it."""
        squared = self.threshold["squared_l2"]
        return self.threshold["best_squared_l2"] if squared is None else squared

    def as_dict(self) -> dict:
        """Returns the set's JSON-serializable entry in card.json."""
        names = "kind sha256 counts threshold duplicates leaks groups curves worst"
        figures = {name: figure.as_dict() for name, figure in self.figures.items()}
        plain = {name: getattr(self, name) for name in names.split()}
        return plain | {"figures": figures, "intervals": self.basis}

    def add_roc(self, points: roc.Curve, high: float = 1.0) -> None:
        """Adds the ROC curve, up to a FAR."""
        low = max(1.0 / points.num_different, 1e-8)
        grid = np.logspace(np.log10(low), np.log10(max(high, low)), _POINTS)
        self.curves["roc"] = {"far": _rounded(grid), "tar": _rounded(points.tar(grid))}

    def add_curve(self, points: roc.Curve, far: float) -> None:
        """Adds all that follows from the ROC curve alone: the threshold and curves."""
        calibrated = not_supported("false pairs", far * points.num_different)
        if roc.supports(far, points.num_different):
            calibrated = Figure(points.threshold(far))
        self.threshold = _threshold(calibrated, points, far)
        # The last point covers all cosines below the lowest threshold.
        resolved = points.false_accepts[-2]
        self.add_roc(points, resolved)
        rates = roc.error_rates(points.num_different)
        errors = {r: Figure(float(1 - points.tar(r))) for r in rates if r <= resolved}
        self.add_errors("fmr", "fnmr", errors)

    def add_scores(self, scores: PairScores) -> None:
        """Adds the histogram of cosines and error versus discard."""
        cosines = 1 - scores.distances / 2
        low = np.floor(cosines.min() * 10) / 10
        high = max(np.ceil(cosines.max() * 10) / 10, low + 0.1)
        edges = np.linspace(low, high, _BINS + 1)
        self.curves["histogram"] = {"cosine_edges": _rounded(edges)}
        for label, kind in (("same", scores.same), ("different", ~scores.same)):
            counts, _ = np.histogram(cosines[kind], edges)
            self.curves["histogram"][label] = _rounded(counts / max(int(kind.sum()), 1))
        self.add_discards(scores)

    def add_discards(self, scores: PairScores) -> None:
        """Adds the error-versus-discard curve, if embeddings differ in length."""
        norms = scores.norms
        if norms is None or np.ptp(norms) <= _SAME_NORMS * norms.max():
            return
        discarded, missed = quality.error_versus_discard(scores, self.limit)
        curve = {"discarded": _rounded(discarded), "fnmr": _rounded(missed)}
        self.curves["discard"] = curve | {"squared_l2": self.limit}

    def add_errors(self, x: str, y: str, errors: dict) -> None:
        """Adds the DET curve, {rate x: `Figure` of rate y}, unless it is empty."""
        if errors:
            self.curves["det"] = curve = {x: _rounded(errors)}
            for name, end in {"value": "", "low": "_low", "high": "_high"}.items():
                curve[y + end] = _rounded(getattr(one, name) for one in errors.values())


def of_pairs(
    name: str,
    scores: PairScores,
    people: People,
    options: Options,
    kind: str = "verification",
) -> SetReport:
    """Builds the report on verification pairs, without images and checksum.

    Args:
        name: the set's name.
        scores: the pairs' `PairScores`.
        people: the identities and groups of both sides.
        options: the report's options.
        kind: "verification" uses the ten folds, "templates" doesn't.
    """
    folds = FOLDS if kind == "verification" else 0
    sides = people.sides
    statistics = roc.PairStatistics(scores, far=options.far, folds=folds)
    given = statistics.values(), statistics.measure, sides, options
    figures = bootstrap.intervals(*given)
    errors = {rate: figures.pop(rate) for rate in statistics.grid}
    points, limit = statistics.curve(), figures.pop(roc.CALIBRATED)
    # All thresholds between the last accepted pair and this one have the same FAR.
    accepted = points.distances[points.last(options.far)].item()
    low = limit.low and max(accepted - limit.value + limit.low, 0.0)
    threshold = _threshold(dataclasses.replace(limit, low=low), points, options.far)
    if options.calibrate:
        costs, curve = _calibrate(scores, people, options)
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
            found = figures["val_at_far"].text()
            note = f"{missing.note}; insightface's interpolation gives {found}"
            figures["val_at_far"] = dataclasses.replace(missing, note=note)
        threshold |= {"best_squared_l2": best, "best_cosine": 1 - best / 2}
    pairs, different = len(scores.same), points.num_different
    counts = {"pairs": pairs, "same": pairs - different, "different": different}
    counts["identities"] = len(np.unique(sides))
    report = SetReport(name, kind, figures, counts, people.basis, threshold)
    report.add_errors("fmr", "fnmr", errors)
    report.add_roc(points)
    report.add_scores(scores)
    if people.groups is not None:
        report.groups = rates_of_groups(scores, report.limit, people, options)
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
    rates = identification.FALSE_POSITIVE_RATES
    measured = [rate for rate in rates if roc.supports(rate, num_open)]
    grid = sorted({*measured, *roc.error_rates(num_open)})
    first = identification.open_set(search)
    listed = identification.open_set(search, identification.LISTED)

    def measure(weights):
        ranks = identification.rank_rates(search, weights=weights)
        values = {f"rank_{k}": value for k, value in ranks.items()}
        if weights[search.mated].any() and weights[~search.mated].any():
            tpirs = first.curve(weights).tar(measured)
            names = (f"tpir@fpir={rate:.0e}" for rate in measured)
            values |= zip(names, tpirs, strict=True)
            values |= zip(grid, 1 - listed.curve(weights).tar(grid), strict=True)
        return values

    values = measure(np.ones(len(search.mated)))
    values = values or {"rank_1": Figure(None, note="no probe is in the gallery")}
    figures = bootstrap.intervals(values, measure, identities, options)
    errors = {rate: figures.pop(rate) for rate in grid if rate in figures}
    for rate in rates:
        missing = not_supported("false positives", rate * num_open)
        if roc.supports(rate, num_open):
            missing = Figure(None, note="no probe is in the gallery")
        figures.setdefault(f"tpir@fpir={rate:.0e}", missing)
        figures[f"fnir@fpir={rate:.0e}"] = errors.get(rate, missing)
    at = identification.tpir_at_fpir(search, [options.far])
    tpir, cosine = at.get(options.far, (None, None))
    threshold = {"fpir": options.far, "cosine": cosine, "squared_l2": None}
    if at:
        threshold |= {"squared_l2": 2 - 2 * cosine, "tpir": tpir}
    else:
        threshold["note"] = f"too few probes without a mate ({num_open}), or with one"
    probes = len(search.mated)
    counts = {"gallery identities": search.num_identities, "probes": probes}
    counts |= {"probes with a mate": probes - num_open, "probes without": num_open}
    basis = "identities of the probes are drawn; the gallery stays as it is"
    report = SetReport(name, "identification", figures, counts, basis, threshold)
    report.add_errors("fpir", "fnir", errors)
    if search.mated.any():
        cmc = identification.rank_rates(search, range(1, _RANKS + 1))
        report.curves["cmc"] = _rounded(cmc.values())
        report.curves["fnir"] = identification.misses(search)
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
    hits = {f"top_{k}": ranks <= k for k in (1, 5)}

    def measure(weights=None):
        return {k: np.average(hit, weights=weights) for k, hit in hits.items()}

    figures = bootstrap.intervals(measure(), measure, labels, options)
    counts = {"images": len(labels), "classes": len(np.unique(labels))}
    return SetReport(name, "classes", figures, counts, basis="classes are drawn")


def _calibrate(scores, people, options):
    """Returns (figures on the calibration, {"calibration"} for the threshold)."""
    cosines, same, method = 1 - scores.distances / 2, scores.same, options.calibrate
    try:
        found = calibration.fit(cosines, same, method, options.prior)
        llrs = calibration.held_out(cosines, same, people.sides, method)
    except ValueError as error:
        return {"cllr": Figure(None, note=str(error))}, {}

    def measure(weights=None):
        return {"cllr": calibration.cllr(llrs, same, weights)}

    figures = bootstrap.intervals(measure(), measure, people.sides, options)
    figures["min_cllr"] = Figure(calibration.min_cllr(cosines, same))
    known = dataclasses.asdict(found)
    if people.groups is not None:
        known["groups"] = calibration.of_groups(scores, people, llrs, method)
    return figures, {"calibration": known}


def _threshold(calibrated, points, far):
    """Returns the threshold, as squared distance and cosine, JSON-serializable."""
    scales = {"squared_l2": calibrated, "cosine": calibrated.as_cosine()}
    threshold = {"far": far} | {scale: one.value for scale, one in scales.items()}
    if calibrated.value is None:
        note = f"{calibrated.note}. {points.num_different} different pairs are enough "
        note += f"for FAR={MIN_ERRORS / points.num_different:.2g} or more"
        return threshold | {"note": note}
    threshold["far_measured"] = points.false_accepts[points.last(far)].item()
    threshold["tar"] = points.tar(far).item()
    if calibrated.low is not None:
        for scale, one in scales.items():
            threshold |= {f"{scale}_low": one.low, f"{scale}_high": one.high}
    return threshold


def _rounded(values):
    """Returns a list of numbers of six digits; None stays None."""
    return [None if one is None else float(f"{one:.6g}") for one in values]
