"""The figures of a verification set when its pairs count more or less than once."""

import numpy as np

from plsc_tf.evaluation import kfold, roc
from plsc_tf.evaluation.figures import not_supported

ACCURACY, THRESHOLD, VAL = "accuracy", "best_threshold", "val_at_far"
EER, AUC, XNORM, CALIBRATED = "eer", "auc", "xnorm", "calibrated_threshold"


def tar_name(rate):
    """The name of the figure TAR at a FAR: 0.001 is "tar@far=1e-03"."""
    return f"tar@far={rate:.0e}"


class PairStatistics:
    """Sorts the pairs of a verification set once, then measures them with any weights.

    Args:
        scores: `verification.PairScores`.
        rates: FARs to give the TAR at.
        far: the FAR that the calibrated threshold keeps.
        folds: of the protocol; 0 leaves its figures out.
    """

    def __init__(
        self, scores, rates=roc.FALSE_ACCEPT_RATES, far=1e-3, folds=kfold.FOLDS
    ):
        self._scores, self._rates, self._far, self._folds = scores, rates, far, folds
        distances, same = scores.distances, scores.same
        self._order = np.argsort(distances, kind="stable")
        ordered = distances[self._order]
        self._last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
        self._distances = np.append(-np.inf, ordered[self._last])
        self._num_different = len(same) - int(np.count_nonzero(same))
        if folds:
            self._fold_of = kfold.members(len(same), folds)
            self._cells = {
                len(grid): self._fold_of * (len(grid) + 1)
                + np.searchsorted(grid, distances, side="right")
                for grid in (kfold.ACCURACY_THRESHOLDS, kfold.FAR_THRESHOLDS)
            }

    def values(self, result=None):
        """The figures as they are, in the order of a table.

        Args:
            result: the `verification.VerificationResult` of the same scores, for the
                figures of the folds.

        Returns:
            {name: value, or a `Figure` that says why there is none}.
        """
        points = self.curve()
        values = {}
        if self._folds:
            values = {
                ACCURACY: result.accuracy,
                THRESHOLD: result.threshold,
                VAL: result.val_at_far,
            }
        tars = roc.tar_at_far(points, self._rates)
        for rate in self._rates:
            values[tar_name(rate)] = tars.get(rate, self._missing(rate))
        values[EER] = roc.equal_error_rate(points)
        values[AUC] = roc.area_under_curve(points)
        if self._scores.norms is not None:
            values[XNORM] = float(np.mean(self._scores.norms))
        at = roc.operating_point(points, self._far)
        values[CALIBRATED] = self._missing(self._far) if at is None else at.threshold
        return values

    def curve(self):
        """The `roc.Curve` of all pairs."""
        return roc.curve(self._scores.distances, self._scores.same)

    def measure(self, weights):
        """The figures with weights.

        Args:
            weights: float64 [pairs], how often each pair counts.

        Returns:
            {name: value}; NaN, or no such name, where there is none.
        """
        same = self._scores.same
        total_same = float(weights[same].sum())
        total_different = float(weights.sum()) - total_same
        if total_same <= 0 or total_different <= 0:
            return {}
        found = self._curve_figures(weights, total_same, total_different)
        if self._scores.norms is not None:
            found[XNORM] = float(np.average(self._scores.norms, weights=weights))
        if self._folds:
            found |= self._fold_figures(weights)
        return found

    def _missing(self, rate):
        return not_supported(
            "false pairs", rate * self._num_different, roc.MIN_FALSE_ACCEPTS
        )

    def _curve_figures(self, weights, total_same, total_different):
        ordered, hits = weights[self._order], self._scores.same[self._order]
        accepted = np.append(0, np.cumsum(ordered)[self._last])
        true = np.append(0, np.cumsum(ordered * hits)[self._last])
        points = roc.Curve(
            false_accepts=(accepted - true) / total_different,
            true_accepts=true / total_same,
            distances=self._distances,
            num_different=self._num_different,
        )
        found = {EER: roc.equal_error_rate(points), AUC: roc.area_under_curve(points)}
        for rate in self._rates:
            last = self._last_within(points, rate)
            found[tar_name(rate)] = float(points.true_accepts[last])
        after = self._last_within(points, self._far) + 1
        if after < len(points.distances):
            found[CALIBRATED] = float(points.distances[after])
        return found

    def _last_within(self, points, rate):
        """The last point whose FAR is at most `rate`."""
        rates = points.false_accepts
        return int(np.searchsorted(rates, rate + 1e-12, side="right")) - 1

    def _fold_figures(self, weights):
        same, fold_of = self._scores.same, self._fold_of
        of_fold = np.bincount(fold_of, weights, self._folds)
        negatives = np.bincount(fold_of[~same], weights[~same], self._folds)
        grid = kfold.ACCURACY_THRESHOLDS
        correct = self._accepted(grid, same, weights) + negatives[:, np.newaxis]
        correct -= self._accepted(grid, ~same, weights)
        total = correct.sum(axis=0)
        best = np.argmax(total - correct, axis=1)
        drawn = of_fold > 0
        rows = np.arange(self._folds)
        accuracy = correct[rows, best][drawn] / of_fold[drawn]
        return {
            ACCURACY: float(np.mean(accuracy)),
            THRESHOLD: float(grid[np.argmax(total)]),
            VAL: self._val(weights, negatives),
        }

    def _val(self, weights, negatives):
        same, fold_of = self._scores.same, self._fold_of
        accepted = self._accepted(kfold.FAR_THRESHOLDS, ~same, weights)
        others = accepted.sum(axis=0) - accepted
        left = negatives.sum() - negatives
        thresholds = np.zeros(self._folds)
        for fold in np.flatnonzero(left > 0):
            rates = others[fold] / left[fold]
            if rates[-1] >= kfold.FAR_TARGET:
                thresholds[fold] = np.interp(
                    kfold.FAR_TARGET, rates, kfold.FAR_THRESHOLDS
                )
        hit = same & (self._scores.distances < thresholds[fold_of])
        positives = np.bincount(fold_of[same], weights[same], self._folds)
        found = np.bincount(fold_of[hit], weights[hit], self._folds)
        drawn = positives > 0
        return float(np.mean(found[drawn] / positives[drawn]))

    def _accepted(self, grid, kind, weights):
        """[folds, thresholds] weight of the pairs of a kind below each threshold."""
        width = len(grid) + 1
        cells = np.bincount(
            self._cells[len(grid)][kind], weights[kind], self._folds * width
        )
        return np.cumsum(cells.reshape(self._folds, width), axis=1)[:, :-1]


def pair_weights(left, right):
    """How often each pair counts when identities were drawn; for `intervals`.

    Args:
        left: int [pairs], number of the identity on the left.
        right: int [pairs], on the right; equal for pairs of one identity.

    Returns:
        Callable, counts of the identities -> float64 [pairs].
    """
    same = left == right

    def weights(counts):
        on_left = counts[left]
        return np.where(same, on_left, on_left * counts[right])

    return weights
