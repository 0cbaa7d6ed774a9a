"""Cross-validation of distance thresholds over consecutive folds of pairs."""

import numpy as np

# Squared distances of unit vectors lie in 0..4; the steps are insightface's.
ACCURACY_THRESHOLDS = np.arange(0.0, 4.0, 0.01)
FAR_THRESHOLDS = np.arange(0.0, 4.0, 0.001)
FAR_TARGET = 1e-3
FOLDS = 10


def members(count, folds):
    """[count] fold of each pair: consecutive, the first `count % folds` one larger."""
    sizes = np.full(folds, count // folds)
    sizes[: count % folds] += 1
    return np.repeat(np.arange(folds), sizes)


def _accepted(distances, thresholds):
    """[thresholds] how many distances are less than each threshold."""
    return np.searchsorted(np.sort(distances), thresholds, side="left")


def _accepted_by_fold(distances, fold_of, num_folds, thresholds):
    """[folds, thresholds] the same for the pairs of each fold."""
    return np.stack(
        [_accepted(distances[fold_of == fold], thresholds) for fold in range(num_folds)]
    )


def accuracies(distances, same, fold_of):
    """Scores each fold at the threshold that is best on the other folds.

    Args:
        distances: [pairs] float, squared, in 0..4.
        same: [pairs] bool, whether both sides are one identity.
        fold_of: [pairs] int, from `members`.

    Returns:
        [folds] accuracies, and the threshold that is best over all pairs; of equally
        good thresholds the smallest one counts.
    """
    sizes = np.bincount(fold_of)
    true_accepts, false_accepts = (
        _accepted_by_fold(
            distances[kind], fold_of[kind], len(sizes), ACCURACY_THRESHOLDS
        )
        for kind in (same, ~same)
    )
    negatives = np.bincount(fold_of[~same], minlength=len(sizes))[:, np.newaxis]
    correct = true_accepts + negatives - false_accepts
    total = correct.sum(axis=0)
    best = np.argmax(total - correct, axis=1)  # the first of equally good ones
    scores = correct[np.arange(len(sizes)), best] / sizes
    return scores, float(ACCURACY_THRESHOLDS[np.argmax(total)])


def validation_rates(distances, same, fold_of):
    """Accepted shares of each fold at the threshold of the others' FAR target.

    Args:
        distances: [pairs] float, squared, in 0..4.
        same: [pairs] bool, whether both sides are one identity.
        fold_of: [pairs] int, from `members`.

    Returns:
        [folds] accepted share of the same pairs and [folds] of the different pairs;
        NaN for a fold that has none of the kind.
    """
    num_folds = fold_of[-1] + 1
    val, far = np.full(num_folds, np.nan), np.full(num_folds, np.nan)
    for fold in range(num_folds):
        held_out = fold_of == fold
        others = distances[~held_out & ~same]
        threshold = 0.0
        if len(others):
            rates = _accepted(others, FAR_THRESHOLDS) / len(others)
            if rates[-1] >= FAR_TARGET:
                # The curve is flat in places. There np.interp starts from the last
                # of the equal points, as the linear spline of the original does.
                threshold = np.interp(FAR_TARGET, rates, FAR_THRESHOLDS)
        for kind, result in ((same, val), (~same, far)):
            chosen = distances[held_out & kind]
            if len(chosen):
                result[fold] = np.mean(chosen < threshold)
    return val, far
