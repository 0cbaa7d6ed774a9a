"""Receiver operating characteristic (ROC) of distances: TAR@FAR, AUC and EER.

A pair is accepted if its distance is less than a threshold. TAR is the share of same
pairs (one identity) that are accepted; FAR is the share of different pairs (two
identities) that are accepted.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from plsc_tf.evaluation.report import MIN_ERRORS

FALSE_ACCEPT_RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


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


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
    """A threshold with its TAR and FAR.

    Attributes:
        threshold: pairs are accepted if their distance is less than this.
        true_accepts: TAR.
        false_accepts: FAR, at most the requested rate.
    """

    threshold: float
    true_accepts: float
    false_accepts: float


class SortedPairs:
    """Pairs sorted by distance.

    Args:
        distances: `[pairs]` float; smaller means more similar.
        same: `[pairs]` bool, whether both sides show one identity; must contain both
            True and False.
    """

    def __init__(self, distances: np.ndarray, same: np.ndarray):
        self._order = np.argsort(distances, kind="stable")
        ordered = distances[self._order]
        self._same = same[self._order]
        self._last_of_ties = np.append(
            np.flatnonzero(np.diff(ordered)), len(ordered) - 1
        )
        self._distances = np.append(-np.inf, ordered[self._last_of_ties])
        self._num_different = int(np.count_nonzero(~same))

    def curve(self, weights: np.ndarray) -> Curve:
        """Computes the curve for weighted pairs.

        Args:
            weights: `[pairs]` float64, how often each pair counts.

        Returns:
            The `Curve`, with one point for all pairs at the same distance.
        """
        ordered = weights[self._order]
        accepted, true_accepts = (
            np.append(0, np.cumsum(counts)[self._last_of_ties])
            for counts in (ordered, ordered * self._same)
        )
        false_accepts = accepted - true_accepts
        far, tar = (part / part[-1] for part in (false_accepts, true_accepts))
        return Curve(far, tar, self._distances, self._num_different)


def supports(rate: float, num_different: int) -> bool:
    """Returns whether `num_different` pairs are enough to measure a FAR of `rate`."""
    return rate * num_different + 1e-9 >= MIN_ERRORS


def operating_point(points: Curve, rate: float) -> OperatingPoint:
    """Returns the point with the largest threshold whose FAR is at most `rate`."""
    # The tolerance absorbs rounding errors in the rates.
    last = np.searchsorted(points.false_accepts, rate + 1e-12, side="right") - 1
    after = points.distances[last + 1 : last + 2]
    threshold = float(after[0]) if len(after) else float("inf")
    tar, far = float(points.true_accepts[last]), float(points.false_accepts[last])
    return OperatingPoint(threshold, tar, far)


def tar_at_far(points: Curve, rates: Sequence[float] = FALSE_ACCEPT_RATES) -> dict:
    """Computes the best TAR whose FAR doesn't exceed each target.

    Args:
        points: `Curve`.
        rates: FAR targets; a target that too few pairs support is left out.

    Returns:
        {target: TAR}.
    """
    return {
        rate: operating_point(points, rate).true_accepts
        for rate in rates
        if supports(rate, points.num_different)
    }


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
