"""Cross-validation of distance thresholds over consecutive folds of pairs."""

import numpy as np

# Squared distances of unit vectors lie in 0..4; the steps are insightface's.
ACCURACY_THRESHOLDS = np.arange(0.0, 4.0, 0.01)
FAR_THRESHOLDS = np.arange(0.0, 4.0, 0.001)
FAR_TARGET = 1e-3
FOLDS = 10


def members(count: int, folds: int) -> np.ndarray:
    """[count] fold of each pair: consecutive, the first `count % folds` one larger."""
    sizes = np.full(folds, count // folds)
    sizes[: count % folds] += 1
    return np.repeat(np.arange(folds), sizes)


class Folds:
    """Scores each fold at a threshold that the other folds choose.

    Args:
        distances: [pairs] float, squared, in 0..4.
        same: [pairs] bool, whether both sides are one identity.
        folds: number of folds.
    """

    def __init__(self, distances: np.ndarray, same: np.ndarray, folds: int = FOLDS):
        self._distances, self._same, self._folds = distances, same, folds
        self._fold_of = members(len(same), folds)
        self._cells = {
            len(grid): self._fold_of * (len(grid) + 1)
            + np.searchsorted(grid, distances, side="right")
            for grid in (ACCURACY_THRESHOLDS, FAR_THRESHOLDS)
        }

    def accuracies(self, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Accuracies at the thresholds that are best on the other folds.

        Args:
            weights: [pairs] float64, how often each pair counts.

        Returns:
            [folds] accuracies, NaN for a fold of no weight, and the threshold that is
            best over all pairs; of equally good thresholds the smallest one counts.
        """
        sizes = np.bincount(self._fold_of, weights, self._folds)
        negatives = self._count(~self._same, weights)
        correct = self._accepted(ACCURACY_THRESHOLDS, self._same, weights)
        correct += negatives[:, np.newaxis]
        correct -= self._accepted(ACCURACY_THRESHOLDS, ~self._same, weights)
        total = correct.sum(axis=0)
        best = np.argmax(total - correct, axis=1)  # the first of equally good ones
        scores = _ratio(correct[np.arange(self._folds), best], sizes)
        return scores, float(ACCURACY_THRESHOLDS[np.argmax(total)])

    def validation_rates(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Accepted shares of each fold at the threshold of the others' FAR target.

        Args:
            weights: [pairs] float64, how often each pair counts.

        Returns:
            [folds] accepted share of the same pairs and [folds] of the different pairs;
            NaN for a fold that has none of the kind.
        """
        accepted = self._accepted(FAR_THRESHOLDS, ~self._same, weights)
        negatives = self._count(~self._same, weights)
        others = accepted.sum(axis=0) - accepted
        num_others = negatives.sum() - negatives
        thresholds = np.zeros(self._folds)
        for fold in np.flatnonzero(num_others > 0):
            rates = others[fold] / num_others[fold]
            if rates[-1] >= FAR_TARGET:
                # The curve is flat in places. There np.interp starts from the last
                # of the equal points, as the linear spline of the original does.
                thresholds[fold] = np.interp(FAR_TARGET, rates, FAR_THRESHOLDS)
        hit = self._distances < thresholds[self._fold_of]
        val, far = (
            _ratio(self._count(hit & kind, weights), self._count(kind, weights))
            for kind in (self._same, ~self._same)
        )
        return val, far

    def _count(self, kind, weights):
        """[folds] weight of the pairs of a kind."""
        return np.bincount(self._fold_of[kind], weights[kind], self._folds)

    def _accepted(self, grid, kind, weights):
        """[folds, thresholds] weight of the pairs of a kind below each threshold."""
        width = len(grid) + 1
        cells = self._cells[len(grid)][kind]
        counts = np.bincount(cells, weights[kind], self._folds * width)
        return np.cumsum(counts.reshape(self._folds, width), axis=1)[:, :-1]


def _ratio(part, whole):
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
