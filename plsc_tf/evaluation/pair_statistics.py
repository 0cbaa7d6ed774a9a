"""The figures of a verification set when its pairs count more or less than once."""

from collections.abc import Callable

import numpy as np

from plsc_tf.evaluation import kfold, roc
from plsc_tf.evaluation.figures import not_supported

ACCURACY, THRESHOLD, VAL = "accuracy", "best_threshold", "val_at_far"
EER, AUC, XNORM, CALIBRATED = "eer", "auc", "xnorm", "calibrated_threshold"


class PairStatistics:
    """Sorts the pairs of a verification set once, then measures them with any weights.

    Args:
        scores: `verification.PairScores`.
        far: the FAR that the calibrated threshold keeps.
        folds: of the protocol; 0 leaves its figures out.
    """

    def __init__(self, scores, far: float = 1e-3, folds: int = kfold.FOLDS):
        self._scores, self._folds = scores, None
        self._pairs = roc.SortedPairs(scores.distances, scores.same)
        if folds:
            self._folds = kfold.Folds(scores.distances, scores.same, folds)
        self._rate_of = {f"tar@far={rate:.0e}": rate for rate in roc.FALSE_ACCEPT_RATES}
        self._rate_of[CALIBRATED] = far

    def values(self) -> dict:
        """{name: value, or a `Figure` that says why there is none}, in table order."""
        values = self.measure(np.ones(len(self._scores.same)))
        count = int(np.count_nonzero(~self._scores.same))
        for name, rate in self._rate_of.items():
            if not roc.supports(rate, count):
                values[name] = not_supported(
                    "false pairs", rate * count, roc.MIN_FALSE_ACCEPTS
                )
        return values

    def curve(self) -> roc.Curve:
        """The `roc.Curve` of all pairs."""
        return self._pairs.curve(np.ones(len(self._scores.same)))

    def measure(self, weights: np.ndarray) -> dict:
        """The figures with weights.

        Args:
            weights: float64 [pairs], how often each pair counts.

        Returns:
            {name: value}; NaN, or no such name, where there is none.
        """
        same, norms, values = self._scores.same, self._scores.norms, {}
        if not (np.any(weights[same] > 0) and np.any(weights[~same] > 0)):
            return values
        if self._folds:
            accuracies, values[THRESHOLD] = self._folds.accuracies(weights)
            val, _ = self._folds.validation_rates(weights)
            values = {ACCURACY: float(np.nanmean(accuracies)), **values}
            values[VAL] = float(np.nanmean(val))
        points = self._pairs.curve(weights)
        at = {
            name: roc.operating_point(points, rate)
            for name, rate in self._rate_of.items()
        }
        calibrated = at.pop(CALIBRATED).threshold
        values |= {name: point.true_accepts for name, point in at.items()}
        values[EER] = roc.equal_error_rate(points)
        values[AUC] = roc.area_under_curve(points)
        if norms is not None:
            values[XNORM] = float(np.average(norms, weights=weights))
        return values | {CALIBRATED: calibrated}


def pair_weights(left: np.ndarray, right: np.ndarray) -> Callable:
    """How often each pair counts when identities were drawn; for `intervals`.

    Args:
        left: int [pairs], number of the identity on the left.
        right: int [pairs], on the right; equal for pairs of one identity.

    Returns:
        Callable, counts of the identities -> float64 [pairs].
    """

    def weights(counts):
        return np.where(left == right, counts[left], counts[left] * counts[right])

    return weights
