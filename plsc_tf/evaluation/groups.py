"""How unequal error rates are over groups of people. NumPy only.

All groups share one threshold. ISO/IEC 19795-10:2024 asks for the error rates of each
group and for one number that summarizes them. The ratios are those of Grother,
"Summarizing demographic differentials" (NIST IR 8429, 2022); the Gini coefficient is
that of Howard et al., "Evaluating proposed fairness models for face recognition
algorithms" (2022), with its correction n / (n - 1) for few groups.
"""

from collections.abc import Mapping

import numpy as np

from plsc_tf.evaluation.bootstrap import MIN_IDENTITIES
from plsc_tf.evaluation.report import MIN_ERRORS, Figure, not_supported


def error_rate(errors: float, pairs: float, people: int, overall: float) -> Figure:
    """Returns a group's error rate, or why the group is too small for one.

    Args:
        errors: number of the group's pairs that are judged wrongly.
        pairs: number of the group's pairs.
        people: number of different people in these pairs.
        overall: the error rate of all people at the same threshold; it must promise ten
            errors for a group of this size.
    """
    if people < MIN_IDENTITIES:
        return Figure(None, note=f"{people} people; needs {MIN_IDENTITIES}")
    if overall * pairs < MIN_ERRORS:
        return not_supported("expected errors", overall * pairs)
    return Figure(float(errors / pairs))


def summarize(rates: Mapping[str, Figure]) -> dict:
    """Summarizes the rates of one kind of error, JSON-serializable.

    Args:
        rates: {group: false match rate or false non-match rate; None as a value if the
            group is too small}.

    Returns:
        {"groups": {group: {"value", ..., "over_geometric_mean", "over_best"}}, "worst",
        "max", "max_over_geometric_mean", "max_over_best", "gini", "note"}: the ratio of
        each rate to the geometric mean and to the lowest rate; the group with the
        highest rate, this rate and its ratios; 0 for equal rates to 1 for errors in one
        group only. What is undefined is None, and the note says why.
    """
    ratios = ("over_geometric_mean", "over_best")
    groups = {
        name: rate.as_dict() | dict.fromkeys(ratios) for name, rate in rates.items()
    }
    names = ("worst", "max", *(f"max_{ratio}" for ratio in ratios), "gini")
    summary = {"groups": groups, **dict.fromkeys(names), "note": ""}
    known = {name: rate.value for name, rate in rates.items() if rate.value is not None}
    values, count = np.array([*known.values()]), len(known)
    if count < 2 or not values.any():
        why = "needs two groups that are large enough" if count < 2 else "no errors"
        return summary | {"note": why}
    worst = max(known, key=known.__getitem__)
    summary |= {"worst": worst, "max": known[worst]}
    differences = np.abs(values[:, np.newaxis] - values).sum()
    summary["gini"] = float(differences / (2 * count * (count - 1) * values.mean()))
    if not values.all():
        return summary | {"note": "no ratios: a group has no errors"}
    scales = np.exp(np.mean(np.log(values))), values.min()
    for ratio, scale in zip(ratios, scales, strict=True):
        for name, value in known.items():
            groups[name][ratio] = float(value / scale)
        summary[f"max_{ratio}"] = groups[worst][ratio]
    return summary
