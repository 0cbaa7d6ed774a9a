"""Receiver operating characteristic of distances: TAR@FAR, AUC and EER.

A pair is accepted when its distance is less than a threshold. TAR is the share of
accepted pairs of the same identity, FAR that of accepted pairs of two identities.
"""

import dataclasses

import numpy as np

FALSE_ACCEPT_RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# A rate that fewer false accepts than these would make up is not measured.
MIN_FALSE_ACCEPTS = 10


@dataclasses.dataclass(frozen=True)
class Curve:
    """Every point of the curve, from "accept nothing" to "accept everything".

    Attributes:
        false_accepts: [points] FAR, ascending from 0 to 1.
        true_accepts: [points] TAR, ascending from 0 to 1.
        distances: [points] the largest distance that is accepted; -inf at first.
        num_different: how many pairs of two identities there are.
    """

    false_accepts: np.ndarray
    true_accepts: np.ndarray
    distances: np.ndarray
    num_different: int


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
    """A threshold and what it does to the pairs.

    Attributes:
        threshold: pairs are accepted when their distance is less than this.
        true_accepts: TAR.
        false_accepts: FAR, at most the rate that was asked for.
    """

    threshold: float
    true_accepts: float
    false_accepts: float


def curve(distances, same):
    """Sorts the pairs once and counts what each distinct threshold accepts.

    Args:
        distances: [pairs] float, smaller means more alike.
        same: [pairs] bool, whether both sides are one identity; both kinds occur.

    Returns:
        The `Curve`; pairs at equal distances are accepted together.
    """
    order = np.argsort(distances, kind="stable")
    ordered, hits = distances[order], same[order]
    last_of_ties = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
    true_accepts = np.cumsum(hits)[last_of_ties]
    false_accepts = last_of_ties + 1 - true_accepts
    num_same = int(np.count_nonzero(same))
    num_different = len(same) - num_same
    return Curve(
        false_accepts=np.append(0, false_accepts) / num_different,
        true_accepts=np.append(0, true_accepts) / num_same,
        distances=np.append(-np.inf, ordered[last_of_ties]),
        num_different=num_different,
    )


def supports(rate, num_different):
    """Whether so many pairs of two identities can tell a FAR of `rate`."""
    return _allowed(rate, num_different) >= MIN_FALSE_ACCEPTS


def operating_point(points, rate):
    """The largest threshold whose FAR is at most `rate`; None if it is not supported.

    Args:
        points: `Curve`.
        rate: the FAR to keep.

    Returns:
        An `OperatingPoint`, or None where `supports` says no.
    """
    if not supports(rate, points.num_different):
        return None
    # 1e-3 * 3000 is a rounding error away from 3: compare counts, with a margin.
    accepted = np.rint(points.false_accepts * points.num_different)
    allowed = _allowed(rate, points.num_different)
    last = int(np.searchsorted(accepted, allowed, side="right")) - 1
    after = points.distances[last + 1 : last + 2]
    return OperatingPoint(
        threshold=float(after[0]) if len(after) else float("inf"),
        true_accepts=float(points.true_accepts[last]),
        false_accepts=float(points.false_accepts[last]),
    )


def tar_at_far(points, rates=FALSE_ACCEPT_RATES):
    """The best TAR among the thresholds whose FAR is at most each rate.

    Args:
        points: `Curve`.
        rates: FAR targets. One that would allow fewer than ten false accepts among
            the pairs is left out: it cannot be measured.

    Returns:
        Dict of target to TAR.
    """
    found = {rate: operating_point(points, rate) for rate in rates}
    return {rate: at.true_accepts for rate, at in found.items() if at is not None}


def _allowed(rate, num_different):
    """False accepts within `rate`, whole."""
    return int(np.floor(rate * num_different + 1e-9))


def area_under_curve(points):
    """Probability that a same pair is closer than a different one, ties half."""
    width = np.diff(points.false_accepts)
    height = (points.true_accepts[1:] + points.true_accepts[:-1]) / 2
    return float(np.sum(width * height))


def equal_error_rate(points):
    """The error at which FAR equals 1 - TAR, on the straight line between points."""
    gap = points.false_accepts + points.true_accepts - 1.0  # ascending, from -1 to 1
    after = int(np.argmax(gap >= 0.0))
    before = after - 1
    share = -gap[before] / (gap[after] - gap[before])
    step = points.false_accepts[after] - points.false_accepts[before]
    return float(points.false_accepts[before] + share * step)
