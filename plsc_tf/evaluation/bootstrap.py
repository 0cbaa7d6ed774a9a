"""Confidence intervals by resampling identities.

Pairs that share a person are correlated, so resampling pairs gives intervals that are
too narrow. This module resamples identities, with replacement. If an identity is drawn
c times, its genuine pairs count c times; a pair with another identity, drawn d times,
counts c * d times (the vertex bootstrap of Snijders and Borgatti, "Non-parametric
standard errors and tests for network statistics", 1999).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from plsc_tf.evaluation.report import Figure, Options

CONFIDENCE = 0.95
# Resampling fewer identities says little about the population.
MIN_IDENTITIES = 10
# Largest share of draws in which a metric may be undefined, for example because no
# pair of different identities was drawn.
_MAX_UNDEFINED = 0.05


def intervals(
    values: dict, measure: Callable, identities: np.ndarray, options: Options
) -> dict:
    """Computes percentile intervals for several metrics.

    Args:
        values: {name: value on the original data, or a `Figure` without a value}.
        measure: callable, float64 `[items]`, how often each item counts -> {name:
            value}; NaN if the value is undefined.
        identities: the identity of each item, `[items]`, or those of both sides of
            each pair, `[2, items]`; any values that NumPy can sort.
        options: the report's `Options`.

    Returns:
        {name: `Figure`}, with the names and order of `values`.
    """
    figures = {
        name: value if isinstance(value, Figure) else Figure(float(value))
        for name, value in values.items()
    }
    if not options.samples:
        return figures
    names = [name for name, figure in figures.items() if figure.value is not None]
    present, numbers = np.unique(identities, return_inverse=True)
    numbers, count = numbers.reshape(np.shape(identities)), len(present)
    if count < MIN_IDENTITIES:
        note = f"no interval: {count} identities; needs {MIN_IDENTITIES}"
        return figures | {n: dataclasses.replace(figures[n], note=note) for n in names}
    drawn = {name: np.empty(options.samples) for name in names}
    rng = np.random.default_rng(options.seed)
    for row in range(options.samples):
        draws = rng.integers(0, count, count)
        counts = np.bincount(draws, minlength=count).astype(np.float64)
        measured = measure(weights(numbers, counts))
        for name in names:
            drawn[name][row] = measured.get(name, np.nan)
    for name in names:
        figures[name] = _with_interval(figures[name], drawn[name])
    return figures


def weights(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns how often items count if their identities were drawn several times.

    Args:
        numbers: int, number of the identity of each item, `[items]`, or of both sides
            of each pair, `[2, items]`.
        counts: `[identities]`, how often each identity was drawn.
    """
    if numbers.ndim == 1:
        return counts[numbers]
    left, right = numbers
    return np.where(left == right, counts[left], counts[left] * counts[right])


def _with_interval(figure, drawn):
    """Adds the percentile interval, or a note on why there is none."""
    defined = drawn[np.isfinite(drawn)]
    if len(defined) < (1 - _MAX_UNDEFINED) * len(drawn):
        note = "no interval: undefined for many draws of identities"
        return dataclasses.replace(figure, note=note)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(defined, [tail, 100 - tail])
    if low == high:
        note = "no interval: all draws of identities give the same value"
        return dataclasses.replace(figure, note=note)
    return dataclasses.replace(figure, low=float(low), high=float(high))


def linked(count, left, right):
    """Labels the connected components of a graph.

    Args:
        count: number of nodes.
        left: int `[links]`, one end of each link.
        right: int `[links]`, the other end of each link.

    Returns:
        int64 `[count]`, the component number of each node, from 0 without gaps.
    """
    labels, before = np.arange(count), None
    while not np.array_equal(labels, before):
        before = labels.copy()
        lowest = np.minimum(labels[left], labels[right])
        for ends in (left, right):
            np.minimum.at(labels, ends, lowest)
            # Otherwise, a chain would take a pass for each link.
            np.minimum.at(labels, before[ends], lowest)
        labels = labels[labels]
    return np.unique(labels, return_inverse=True)[1]
