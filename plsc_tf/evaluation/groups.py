"""How unequal error rates are over groups of people. NumPy only.

All groups share one threshold. ISO/IEC 19795-10:2024 asks for the error rates of each
group and for one number that summarizes them. The ratios are those of Grother,
"Summarizing demographic differentials" (NIST IR 8429, 2022); the Gini coefficient is
that of Howard et al., "Evaluating proposed fairness models for face recognition
algorithms" (2022), with its correction n / (n - 1) for few groups.
"""

import functools
from collections.abc import Mapping

import numpy as np

from plsc_tf.evaluation.bootstrap import CONFIDENCE, intervals, too_few
from plsc_tf.evaluation.report import MIN_ERRORS, Figure, Options, not_supported
from plsc_tf.evaluation.verification import PairScores, People


def error_rate(errors: float, pairs: float, people: int, overall: float) -> Figure:
    """Returns a group's error rate, or why the group is too small for one.

    Args:
        errors: number of the group's pairs that are judged wrongly.
        pairs: number of the group's pairs.
        people: number of different people in these pairs.
        overall: the error rate of all people at the same threshold; it must promise ten
            errors for a group of this size.
    """
    if note := too_few(people):
        return Figure(None, note=note)
    if overall * pairs < MIN_ERRORS:
        return not_supported("expected errors", overall * pairs)
    return Figure(float(errors / pairs))


def summarize(rates: Mapping[str, Figure]) -> dict:
    """Summarizes the rates of one kind of error, JSON-serializable.

    Args:
        rates: {group: false match rate or false non-match rate; None as a value if the
            group is too small}.

    Returns:
        {"groups": {group: {"value", …, "over_geometric_mean", "over_best"}}, "worst",
        "max", "max_over_geometric_mean", "max_over_best", "gini"}: the ratio of each
        rate to the geometric mean and to the lowest rate; the group with the highest
        rate, this rate and its ratios; 0 for equal rates to 1 for errors in one group
        only. What is undefined is left out: a group without errors has no ratios.
    """
    groups = {name: rate.as_dict() for name, rate in rates.items()}
    known = {name: rate.value for name, rate in rates.items() if rate.value is not None}
    summary: dict = {"groups": groups}
    if len(known) < 2:  # noqa: PLR2004 - two groups can be compared
        return summary | {"note": "needs two groups that are large enough"}
    values = np.array([*known.values()])
    largest = values.max()
    summary |= {"worst": max(known, key=known.__getitem__), "max": float(largest)}
    if largest:
        differences = np.abs(values[:, np.newaxis] - values).sum()
        weight = 2 * len(values) * (len(values) - 1) * values.mean()
        summary["gini"] = float(differences / weight)
    if values.all():
        scales = np.exp(np.mean(np.log(values))), values.min()
        for name, scale in zip(("geometric_mean", "best"), scales, strict=True):
            summary[f"max_over_{name}"] = float(largest / scale)
            for group, value in known.items():
                groups[group][f"over_{name}"] = float(value / scale)
    return summary


def rates_of_groups(
    scores: PairScores, threshold: float, people: People, options: Options
) -> dict:
    """Summarizes the error rates of groups at one threshold for all.

    The intervals are simultaneous: with a probability of 95%, all of them contain the
    true rates (Sidak, "Rectangular confidence regions", 1967).

    Args:
        scores: the scores of the pairs.
        threshold: smallest squared distance of pairs that are rejected.
        people: their identities and groups; only pairs within a group count.
        options: the report's `Options`.

    Returns:
        {"fnmr": the result of `summarize`, "fmr": the result of `summarize`}.
    """
    same, rejected = scores.same, scores.distances >= threshold
    fnmr = _rates(same, rejected, people, options)
    fmr = _rates(~same, ~rejected, people, options)
    return {"fnmr": summarize(fnmr), "fmr": summarize(fmr)}


def _rates(kind, wrong, people, options):
    """Returns {group: `Figure`} of the errors among one kind of pairs."""
    groups = people.groups
    within = kind & (groups[0] == groups[1]) & (groups[0] != "")
    names = np.unique(groups[0][within]).tolist()
    level, overall = CONFIDENCE ** (1 / max(len(names), 1)), wrong[kind].mean()
    rates = {}
    for name in names:
        of = within & (groups[0] == name)
        failed, sides = wrong[of], people.sides[:, of]
        rate = error_rate(failed.sum(), of.sum(), len(np.unique(sides)), overall)
        values, measure = {name: rate}, functools.partial(_share, name, failed)
        rates |= intervals(values, measure, sides, options, level)
    return rates


def _share(name, failed, weights):
    return {name: failed @ weights / (weights.sum() or np.nan)}
