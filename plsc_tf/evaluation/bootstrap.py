"""Confidence intervals by resampling identities.

Pairs that share a person are correlated, so resampling pairs gives intervals that are
too narrow. This module resamples identities, with replacement. If an identity is drawn
c times, its genuine pairs count c times; a pair with another identity, drawn d times,
counts c * d times (the vertex bootstrap of Snijders and Borgatti, "Non-parametric
standard errors and tests for network statistics", 1999).

Its variance contains what is particular to a couple of identities three times, because
the variance of c * d is 3 (Owen, "The pigeonhole bootstrap", 2007). A second bootstrap
draws couples independently of each other, and twice its variance is subtracted. This is
the variance of Fafchamps and Gubert ("The formation of risk sharing networks", 2007).

If few identities have most of the items, this variance is too small on average, and
uncertain. Both are corrected for the mean of items that are alike within an identity,
the latter by Student's t with the degrees of freedom of Satterthwaite (Bell and
McCaffrey, "Bias reduction in standard errors for linear regression with multi-stage
samples", 2002; Imbens and Kolesar, "Robust standard errors in small samples", 2016).
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Collection

import numpy as np

from plsc_tf.evaluation.report import Figure, Options

CONFIDENCE = 0.95
# Resampling fewer identities says little about the population.
MIN_IDENTITIES = 10
# Largest share of draws in which a metric may be undefined, for example because no
# pair of different identities was drawn.
_MAX_UNDEFINED = 0.05
_NORMAL = statistics.NormalDist()
# The metrics that are no rates. Their intervals are symmetric.
_NO_RATES = ("calibrated_threshold", "xnorm", "cllr")
# No bootstrap holds for the place of a maximum.
_MAXIMUM = "best_threshold"


def intervals(
    values: dict,
    measure: Callable,
    identities: np.ndarray,
    options: Options,
    confidence: float = CONFIDENCE,
) -> dict:
    """Computes confidence intervals for several metrics.

    That of a rate p with the standard error s is the interval of log(p / (1 - p)),
    whose standard error is s / (p (1 - p)).

    Args:
        values: {name: value on the original data, or a `Figure` without a value}.
        measure: callable, float64 `[items]`, how often each item counts -> {name:
            value}; NaN if the value is undefined.
        identities: the identity of each item, `[items]`, or those of both sides of
            each pair, `[2, items]`; any values that NumPy can sort.
        options: the report's `Options`.
        confidence: probability with which an interval contains the true value.

    Returns:
        {name: `Figure`}, with the names and order of `values`.
    """
    figures = {
        name: value if isinstance(value, Figure) else Figure(float(value))
        for name, value in values.items()
    }
    names = [x for x in figures if figures[x].value is not None and x != _MAXIMUM]
    if options.samples:
        width = _NORMAL.inv_cdf((1 + confidence) / 2)
        for name, error in standard_errors(names, measure, identities, options).items():
            figures[name] = _with_interval(name, figures[name], error, width)
    return figures


def compare(
    first: Callable, second: Callable, identities: np.ndarray, options: Options
) -> dict:
    """Compares the metrics of two models on the same items, identity by identity.

    Args:
        first, second: `measure` of both models; for the other arguments, see
            `intervals`.

    Returns:
        {name: (second - first, its standard error, p)}, p being the probability of a
        difference as large between equally good models. A metric whose standard error
        is unknown is left out.
    """

    def measure(weights):
        one, other = first(weights), second(weights)
        return {name: other[name] - one[name] for name in one}

    found = measure(np.ones(np.shape(identities)[-1]))
    return {
        name: (found[name], error, 2 * _NORMAL.cdf(-abs(found[name]) / error))
        for name, error in standard_errors(found, measure, identities, options).items()
        if not isinstance(error, str)
    }


def too_few(identities: int) -> str:
    """Returns a note if a number of identities is too small for results, else ""."""
    note = f"{identities} identities; needs {MIN_IDENTITIES}"
    return note if identities < MIN_IDENTITIES else ""


def standard_errors(
    names: Collection[str], measure: Callable, identities: np.ndarray, options: Options
) -> dict:
    """Returns {name of a metric: its standard error, or why it is unknown}.

    Args:
        names: the metrics; for the other arguments, see `intervals`.
    """
    present, numbers = np.unique(identities, return_inverse=True)
    numbers, count = numbers.reshape(np.shape(identities)), len(present)
    if note := too_few(count):
        return dict.fromkeys(names, note)
    left, right = sides = np.broadcast_to(numbers, (2, numbers.shape[-1]))
    keys = np.minimum(left, right) * count + np.maximum(left, right)
    couples = np.unique(keys, return_inverse=True)[1]
    rng, drawn = np.random.default_rng(options.seed), []
    for _ in range(options.samples):
        counts = np.bincount(rng.integers(0, count, count), minlength=count)
        times = rng.poisson(1.0, couples.max() + 1)[couples]
        draws = weights(sides, counts * 1.0), np.where(left == right, 1.0, times)
        measured = map(measure, draws)
        drawn.append([[one.get(name, np.nan) for name in names] for one in measured])
    scale = _few_identities(np.bincount(sides.ravel()) / sides.size)
    parts = zip(names, *np.moveaxis(drawn, 0, 2), strict=True)
    return {name: _standard_error(*values, scale) for name, *values in parts}


def _few_identities(shares):
    """Returns the factor of standard errors, from each identity's share of the items.

    It is the root of the true over the expected variance, times the 97.5% quantile of
    Student's t over that of the normal distribution (Abramowitz and Stegun 26.7.5).
    """
    true, cubes, fourths = (np.sum(shares**k) for k in (2, 3, 4))
    bias, freedom = 1 - 2 * cubes / true + true, true**2 / fourths
    return (1 + 1.21 / freedom + 1.44 / freedom**2) / math.sqrt(bias)


def weights(sides: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns how often pairs count if their identities were drawn several times.

    Args:
        sides: int `[2, pairs]`, number of the identity of both sides of each pair.
        counts: `[identities]`, how often each identity was drawn.
    """
    left, right = sides
    return np.where(left == right, counts[left], counts[left] * counts[right])


def _standard_error(by_identity, by_couple, scale):
    """Returns a metric's standard error from its values in the draws, or a reason."""
    parts = [values[np.isfinite(values)] for values in (by_identity, by_couple)]
    if min(map(len, parts)) < (1 - _MAX_UNDEFINED) * len(by_identity):
        return "undefined for many draws of identities"
    whole, of_couples = map(np.var, parts)
    if not whole:
        return "all draws of identities give the same value"
    return scale * math.sqrt(max(whole - 2 * of_couples, whole / 3))


def _with_interval(name, figure, error, width):
    """Adds an interval of `width` standard errors to each side, or a note."""
    value, rate = figure.value, name not in _NO_RATES
    if rate and value in (0, 1) and not isinstance(error, str):
        error = f"the value is {value:g}"
    if isinstance(error, str):
        return dataclasses.replace(figure, note=f"no interval: {error}")
    half = width * error
    low, high = value - half, value + half
    if rate:
        middle, half = math.log(value / (1 - value)), half / (value * (1 - value))
        low, high = ((1 + math.tanh((middle + x) / 2)) / 2 for x in (-half, half))
    return dataclasses.replace(figure, low=low, high=high)


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
