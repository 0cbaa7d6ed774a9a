"""Confidence intervals by resampling identities.

Pairs are not independent: those of one person rise and fall together, so resampling
pairs gives intervals that are too narrow. Here identities are drawn, with replacement.
One that is drawn c times makes its own pairs count c times, and a pair with another
one that is drawn d times count c * d times (the vertex bootstrap of Snijders and
Borgatti, "Non-parametric standard errors and tests for network statistics", 1999).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from plsc_tf.evaluation.report import Figure

CONFIDENCE = 0.95
# Of fewer identities the draws say little about a population.
MIN_IDENTITIES = 10
# Draws in which a figure does not exist, such as without any false pair.
_MAX_UNDEFINED = 0.05


@dataclasses.dataclass(frozen=True)
class Resampling:
    """The draws behind the intervals.

    Attributes:
        samples: draws; 0: no intervals.
        seed: of the draws.
    """

    samples: int = 1000
    seed: int = 0


def intervals(
    values: dict,
    measure: Callable,
    weights: Callable,
    num_identities: int,
    resampling: Resampling,
) -> dict:
    """Percentile intervals of several figures.

    Args:
        values: {name: value on the data as they are, or a `Figure` without a value}.
        measure: callable, weights -> {name: value}; NaN where there is none.
        weights: callable, counts of the identities -> what `measure` takes.
        num_identities: number of identities to draw from.
        resampling: `Resampling`.

    Returns:
        {name: `Figure`}, the names and order of `values`.
    """
    figures = {
        name: value if isinstance(value, Figure) else Figure(float(value))
        for name, value in values.items()
    }
    if not resampling.samples:
        return figures
    names = [name for name, figure in figures.items() if figure.value is not None]
    if num_identities < MIN_IDENTITIES:
        note = f"no interval: {num_identities} identities, {MIN_IDENTITIES} are needed"
        changed = {n: dataclasses.replace(figures[n], note=note) for n in names}
        return figures | changed
    drawn = {name: np.empty(resampling.samples) for name in names}
    rng = np.random.default_rng(resampling.seed)
    for row in range(resampling.samples):
        identities = rng.integers(0, num_identities, num_identities)
        counts = np.bincount(identities, minlength=num_identities).astype(np.float64)
        measured = measure(weights(counts))
        for name in names:
            drawn[name][row] = measured.get(name, np.nan)
    for name in names:
        figures[name] = _with_interval(figures[name], drawn[name])
    return figures


def _with_interval(figure, drawn):
    """Adds the percentile interval if the draws make one."""
    defined = drawn[np.isfinite(drawn)]
    if len(defined) < (1 - _MAX_UNDEFINED) * len(drawn):
        note = "no interval: many draws of identities do not have this figure"
        return dataclasses.replace(figure, note=note)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(defined, [tail, 100 - tail])
    if low == high:
        note = "no interval: every draw of identities gives the same"
        return dataclasses.replace(figure, note=note)
    return dataclasses.replace(figure, low=float(low), high=float(high))


def linked(count, left, right):
    """Numbers things so that linked ones share a number: connected components.

    Args:
        count: number of things.
        left: int [links], one side of each link.
        right: int [links], the other one.

    Returns:
        int64 [count], numbers from 0 without a gap.
    """
    parent = list(range(count))

    def root(one):
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        parent[root(a)] = root(b)
    roots = [root(one) for one in range(count)]
    return np.unique(roots, return_inverse=True)[1]
