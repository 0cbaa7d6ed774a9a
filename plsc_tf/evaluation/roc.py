"""Receiver operating characteristic of distances: TAR@FAR, AUC and EER.

A pair is accepted when its distance is less than a threshold. TAR is the share of
accepted pairs of the same identity, FAR that of accepted pairs of two identities.
"""

import dataclasses

import numpy as np

FALSE_ACCEPT_RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


@dataclasses.dataclass(frozen=True)
class Curve:
    """Every point of the curve, from "accept nothing" to "accept everything".

    Attributes:
        false_accepts: [points] FAR, ascending from 0 to 1.
        true_accepts: [points] TAR, ascending from 0 to 1.
        num_different: how many pairs of two identities there are.
    """

    false_accepts: np.ndarray
    true_accepts: np.ndarray
    num_different: int


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
        num_different=num_different,
    )


def tar_at_far(points, rates=FALSE_ACCEPT_RATES):
    """The best TAR among the thresholds whose FAR is at most each rate.

    Args:
        points: `Curve`.
        rates: FAR targets. One that would allow less than a single false accept
            among the pairs cannot be measured and is left out.

    Returns:
        Dict of target to TAR.
    """
    # 1e-3 * 3000 is a rounding error away from 3: compare counts, with a margin.
    accepted = np.rint(points.false_accepts * points.num_different)
    result = {}
    for rate in rates:
        allowed = np.floor(rate * points.num_different + 1e-9)
        if allowed >= 1:
            last = np.searchsorted(accepted, allowed, side="right") - 1
            result[rate] = float(points.true_accepts[last])
    return result


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
