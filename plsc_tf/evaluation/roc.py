"""Receiver operating characteristic (ROC) of distances: TAR@FAR, AUC and EER.

A pair is accepted if its distance is less than a threshold. TAR is the share of same
pairs (one identity) that are accepted; FAR is the share of different pairs (two
identities) that are accepted. `PairStatistics` gives pairs weights.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from plsc_tf.evaluation.report import MIN_ERRORS, not_supported

FALSE_ACCEPT_RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# Squared distances of unit vectors lie in [0, 4]; the steps match insightface.
ACCURACY_THRESHOLDS = np.arange(0.0, 4.0, 0.01)
FAR_THRESHOLDS = np.arange(0.0, 4.0, 0.001)
FAR_TARGET, FOLDS = 1e-3, 10
CALIBRATED = "calibrated_threshold"


@dataclasses.dataclass(frozen=True)
class Curve:
    """All points of the curve, from "accept nothing" to "accept everything".

    Attributes:
        false_accepts: `[points]`, FAR, ascending from 0 to 1.
        true_accepts: `[points]`, TAR, ascending from 0 to 1.
        distances: `[points]`, the largest accepted distance; the first is -inf.
        num_different: number of different pairs.
    """

    false_accepts: np.ndarray
    true_accepts: np.ndarray
    distances: np.ndarray
    num_different: int

    def last(self, rates):
        """Returns the index of the last point whose FAR is at most each rate."""
        # The tolerance absorbs rounding errors in the rates; it is less than a pair.
        limits = np.asarray(rates) * (1 + 1e-12)
        return np.searchsorted(self.false_accepts, limits, side="right") - 1

    def tar(self, rates) -> np.ndarray:
        """Returns the best TAR whose FAR is at most each rate."""
        return self.true_accepts[self.last(rates)]

    def threshold(self, rate: float) -> float:
        """Returns the largest threshold whose FAR is at most `rate`.

        Pairs are accepted if their distance is less than the threshold.
        """
        after = self.distances[self.last(rate) + 1 :]
        return float(after[0]) if len(after) else np.inf


def supports(rate: float, num_different: int) -> bool:
    """Returns whether `num_different` pairs are enough to measure a FAR of `rate`."""
    return rate * num_different + 1e-9 >= MIN_ERRORS


def error_rates(num_different: int) -> list[float]:
    """Returns the FARs of a DET curve, from ten false accepts to one half."""
    low = MIN_ERRORS / max(num_different, 1)
    return np.geomspace(low, 0.5, 60).tolist() if low < 0.5 else []


def tar_at_far(points: Curve, rates: Sequence[float] = FALSE_ACCEPT_RATES) -> dict:
    """Computes the best TAR whose FAR doesn't exceed each target.

    Args:
        points: `Curve`.
        rates: FAR targets; a target that too few pairs support is left out.

    Returns:
        {target: TAR}.
    """
    supported = [rate for rate in rates if supports(rate, points.num_different)]
    return dict(zip(supported, points.tar(supported).tolist(), strict=True))


def area_under_curve(points: Curve) -> float:
    """Computes the AUC.

    It is the probability that a same pair is closer than a different pair; ties count
    one half.
    """
    width = np.diff(points.false_accepts)
    height = (points.true_accepts[1:] + points.true_accepts[:-1]) / 2
    return float(np.sum(width * height))


def equal_error_rate(points: Curve) -> float:
    """Computes the rate at which FAR equals 1 - TAR, by linear interpolation."""
    gap = points.false_accepts + points.true_accepts - 1.0  # ascending, from -1 to 1
    return float(np.interp(0.0, gap, points.false_accepts))


class PairStatistics:
    """Computes metrics of a verification set for any weights, sorting the pairs once.

    Folds are consecutive, as in scikit-learn's `KFold` without shuffling. Each fold is
    scored at a threshold chosen on the other folds.

    Args:
        scores: `verification.PairScores` of both same and different pairs.
        far: target FAR of the calibrated threshold.
        folds: number of folds; 0 omits the metrics that need folds.

    Attributes:
        grid: the FARs of the DET curve; `measure` returns 1 - TAR at each, with the FAR
            itself as its name.
    """

    def __init__(self, scores, far: float = 1e-3, folds: int = FOLDS):
        self._scores, self._same, self._folds = scores, scores.same, folds
        self._order = np.argsort(scores.distances, kind="stable")
        self._ordered_same = scores.same[self._order]
        ordered = scores.distances[self._order]
        ties = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
        self._last_of_ties, self._limits = ties, np.append(-np.inf, ordered[ties])
        self._rate_of = {f"tar@far={rate:.0e}": rate for rate in FALSE_ACCEPT_RATES}
        self._rate_of[CALIBRATED] = far
        self.grid = error_rates(int(np.count_nonzero(~scores.same)))
        if folds:
            parts = np.array_split(scores.same, folds)
            self._fold_of = np.repeat(np.arange(folds), [len(part) for part in parts])
            self._cells = {}
            for grid in (ACCURACY_THRESHOLDS, FAR_THRESHOLDS):
                places = np.searchsorted(grid, scores.distances, side="right")
                self._cells[len(grid)] = self._fold_of * (len(grid) + 1) + places

    def values(self) -> dict:
        """Returns the unweighted metrics, in table order.

        Returns:
            {name: value, or a `Figure` whose note explains why there is no value}.
        """
        values = self.measure(np.ones(len(self._same)))
        count = int(np.count_nonzero(~self._same))
        for name, rate in self._rate_of.items():
            if not supports(rate, count):
                values[name] = not_supported("false pairs", rate * count)
        return values

    def curve(self, weights: np.ndarray | None = None) -> Curve:
        """Computes the curve, with one point for all pairs at the same distance.

        Args:
            weights: float64 `[pairs]`, how often each pair counts; None means once.
        """
        ordered = np.ones(len(self._same)) if weights is None else weights[self._order]
        both = ordered, ordered * self._ordered_same
        last = self._last_of_ties
        accepted, true_accepts = (np.append(0, np.cumsum(x)[last]) for x in both)
        far, tar = (part / part[-1] for part in (accepted - true_accepts, true_accepts))
        return Curve(far, tar, self._limits, int(np.count_nonzero(~self._same)))

    def measure(self, weights: np.ndarray) -> dict:
        """Computes the weighted metrics.

        Args:
            weights: float64 `[pairs]`, how often each pair counts.

        Returns:
            {name: value}; undefined metrics are NaN or missing.
        """
        same, norms, values = self._same, self._scores.norms, {}
        if not (np.any(weights[same] > 0) and np.any(weights[~same] > 0)):
            return values
        if self._folds:
            accuracies, threshold = self.accuracies(weights)
            values["accuracy"] = float(np.nanmean(accuracies))
            values["best_threshold"] = threshold
            values["val_at_far"] = float(np.nanmean(self.validation_rates(weights)[0]))
        points = self.curve(weights)
        tars = points.tar([*self._rate_of.values()])
        values |= zip(self._rate_of, tars.tolist(), strict=True)
        values[CALIBRATED] = points.threshold(self._rate_of[CALIBRATED])
        values["eer"] = equal_error_rate(points)
        values["auc"] = area_under_curve(points)
        if norms is not None:
            values["xnorm"] = float(np.average(norms.mean(axis=0), weights=weights))
        values |= zip(self.grid, 1 - points.tar(self.grid), strict=True)
        return values

    def accuracies(self, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Computes each fold's accuracy at the best threshold of the other folds.

        Args:
            weights: float64 `[pairs]`, how often each pair counts.

        Returns:
            Accuracies `[folds]`, NaN for a fold without weight, and the best threshold
            over all pairs. Ties go to the smallest threshold.
        """
        grid, same = ACCURACY_THRESHOLDS, self._same
        hits, errors = (self._accepted(grid, kind, weights) for kind in (same, ~same))
        correct = (hits + errors[:, -1:] - errors)[:, :-1]
        total = correct.sum(axis=0)
        best = np.argmax(total - correct, axis=1)  # the first one if there is a tie
        sizes = hits[:, -1] + errors[:, -1]
        scores = _ratio(correct[np.arange(self._folds), best], sizes)
        return scores, float(grid[np.argmax(total)])

    def validation_rates(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Computes each fold's acceptance rates at the other folds' FAR threshold.

        Args:
            weights: float64 `[pairs]`, how often each pair counts.

        Returns:
            The accepted share of same pairs, `[folds]`, and of different pairs,
            `[folds]`; NaN for a fold without pairs of that kind.
        """
        accepted = self._accepted(FAR_THRESHOLDS, ~self._same, weights)
        others = accepted.sum(axis=0) - accepted
        thresholds = np.zeros(self._folds)
        for fold in np.flatnonzero(others[:, -1]):
            rates = others[fold, :-1] / others[fold, -1]
            if rates[-1] >= FAR_TARGET:
                # Where the curve is flat, np.interp starts from the last of the equal
                # points, like the linear spline in insightface.
                thresholds[fold] = np.interp(FAR_TARGET, rates, FAR_THRESHOLDS)
        hit = self._scores.distances < thresholds[self._fold_of]
        same = self._same

        def count(kind):
            return np.bincount(self._fold_of[kind], weights[kind], self._folds)

        return tuple(_ratio(count(hit & kind), count(kind)) for kind in (same, ~same))

    def _accepted(self, grid, kind, weights):
        """Returns one kind's weight below each threshold, and in total, per fold.

        The result is `[folds, thresholds + 1]`.
        """
        width, cells = len(grid) + 1, self._cells[len(grid)][kind]
        counts = np.bincount(cells, weights[kind], self._folds * width)
        return np.cumsum(counts.reshape(self._folds, width), axis=1)


def _ratio(part, whole):
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
