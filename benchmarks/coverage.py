"""Measures how often the card's intervals contain the true value.

Every set is simulated with known rates: identities have different numbers of images
and are easy or hard to recognize, so that their pairs are correlated. The last line
printed is one JSON object; docs/evaluation.md says what its figures mean.

    python -m benchmarks.coverage
    python -m benchmarks.coverage --designs=sparse,search --sets=200 --samples=100
"""

import collections
import concurrent.futures
import dataclasses
import functools
import math
import statistics
import sys

import numpy as np

from benchmarks import machine, options
from plsc_tf.evaluation import bootstrap, calibration, groups, set_report
from plsc_tf.evaluation.identification import LISTED, Search
from plsc_tf.evaluation.report import Figure, Options
from plsc_tf.evaluation.roc import FALSE_ACCEPT_RATES, PairStatistics
from plsc_tf.evaluation.verification import PairScores, People
from plsc_tf.flags.option import OptionGroup, option

NORMAL = statistics.NormalDist()
# {design: (people, same pairs, different pairs, distance of the two means in standard
# deviations, FAR of the threshold)}. The people of LFW are in one or two different
# pairs each; "dense" compares few people with each other again and again; "rare" has
# about seven errors at the equal error rate.
PAIRS = {
    "sparse": (400, 600, 600, 3.3, 0.05),
    "dense": (80, 400, 1600, 3.3, 0.02),
    "rare": (300, 1000, 1000, 4.9, 0.02),
}
# The same of three groups of people, which share the threshold of one FAR.
GROUPS = ((60, 300, 600, 3.3), (150, 500, 1000, 3.3), (400, 900, 1800, 3.3))
_GROUPS_FAR = 0.02
DESIGNS = (*PAIRS, "search", "classes", "difference", "groups", "calibration")
# The mean and the deviation of the distances of same pairs, and the share of the
# variance that is due to the people.
_MEAN, _DEVIATION, _PEOPLE = 0.8, 0.3, 0.36
_NORM = 20.0
# Scores of a search: mean of those of mates, and the logarithm of the mean number of
# others that score higher than a mate of score 0, and its slope.
_MATE, _OTHERS, _SLOPE = 2.5, -3.0, -1.6
_FPIRS = (0.1, 0.01)
_SEARCHED = 600  # half of them have a mate


class CoverageCase(OptionGroup):
    """What is simulated."""

    designs: tuple[str, ...] = option(DESIGNS, "simulations", choices=" ".join(DESIGNS))
    sets: int = option(1000, "sets to simulate for each design", lower=10)
    samples: int = option(300, "draws for the intervals of a set", lower=20)
    processes: int = option(2, "processes", lower=1)
    seed: int = option(0, "seed of the first set", lower=0)


def main(case):
    """Measures the coverage in all designs and prints it."""
    with machine.report(case) as figures:
        for design in case.designs:
            one = functools.partial(outcome, design, samples=case.samples)
            seeds = range(case.seed, case.seed + case.sets)
            with concurrent.futures.ProcessPoolExecutor(case.processes) as pool:
                outcomes = list(pool.map(one, seeds, chunksize=10))
            figures[design] = summary(outcomes)
            sys.stderr.write(f"{design}: {figures[design]}\n")


def summary(outcomes):
    """Returns {figure: (share of its intervals with the truth, sets with an interval)}.

    "p<0.05" is the share of such p-values between equally good models.
    """
    found = collections.defaultdict(list)
    for one in outcomes:
        for name, hit in one.items():
            found[name].append(hit)
    return {name: (float(np.mean(hits)), len(hits)) for name, hits in found.items()}


def outcome(design, seed, samples):
    """Simulates a set; returns {figure: whether its interval contains the truth}."""
    rng, given = np.random.default_rng([DESIGNS.index(design), seed]), Options(samples)
    if design == "difference":
        return {"p<0.05": p_value(rng, given) < 0.05}
    if design == "groups":
        return of_groups(rng, given)
    if design == "calibration":
        return {"cllr": of_calibration(rng, given)}
    if design == "search":
        found, people, truth = search(rng)
        figures = set_report.of_search("", found, people, given).figures
    elif design == "classes":
        ranks, people, truth = closed_set(rng)
        figures = set_report.of_classes("", ranks, people, given).figures
    else:
        *sizes, far = PAIRS[design]
        (distances,), same, sides = pairs(rng, *sizes)
        norms = _NORM + rng.normal(size=sizes[0])[sides]
        # The accuracy's truth is known for as many same pairs as different ones.
        kind = "verification" if sizes[1] == sizes[2] else "templates"
        scores = PairScores(distances, same, norms)
        given = dataclasses.replace(given, far=far)
        report = set_report.of_pairs("", scores, People(sides, ""), given, kind)
        ends = (report.threshold[f"squared_l2{end}"] for end in ("", "_low", "_high"))
        figures = report.figures | {"threshold": Figure(*ends)}
        truth = rates(sizes[3], far)
    found = {name: figures[name] for name in truth if name in figures}
    return {
        name: one.low <= truth[name] <= one.high
        for name, one in found.items()
        if one.low is not None
    }


def pairs(rng, people, same, different, gap, models=1):
    """Simulates pairs, in random order.

    Args:
        rng: the random generator.
        people: number of people.
        same, different: numbers of pairs.
        gap: distance of the means of both kinds, in standard deviations.
        models: number of models that compare the same pairs. They agree on how easy
            people are, and on half of the variance that is due to images.

    Returns:
        (distances `[models, pairs]`; bool `[pairs]`; the people, int `[2, pairs]`).
    """
    images = 1 + np.minimum(rng.pareto(1.3, people), 30)
    chosen = rng.choice(people, (2, same + different), p=images / images.sum())
    kind = rng.permutation(np.arange(same + different) < same)
    chosen[1] = np.where(kind, chosen[0], chosen[1])
    alike = ~kind & (chosen[0] == chosen[1])
    chosen[1][alike] = (chosen[0][alike] + 1 + rng.integers(0, people - 1)) % people
    ease, likeness = rng.normal(size=(2, people))
    of_people = np.where(
        kind, ease[chosen[0]], likeness[chosen].sum(axis=0) / math.sqrt(2)
    )
    noise = rng.normal(size=(models + 1, len(kind)))
    of_images = noise[0]
    if models > 1:
        of_images = (noise[:1] + noise[1:]) / math.sqrt(2)
    standard = math.sqrt(_PEOPLE) * of_people + math.sqrt(1 - _PEOPLE) * of_images
    distances = _MEAN + _DEVIATION * (np.where(kind, 0.0, gap) + standard)
    return np.atleast_2d(distances), kind, chosen


def rates(gap, far):
    """Returns {figure: its true value} of the pairs of `pairs`."""
    limit = _MEAN + _DEVIATION * (gap + NORMAL.inv_cdf(far))
    tars = {
        f"tar@far={rate:.0e}": NORMAL.cdf(gap + NORMAL.inv_cdf(rate))
        for rate in FALSE_ACCEPT_RATES
    }
    return {
        "accuracy": NORMAL.cdf(gap / 2),
        "eer": NORMAL.cdf(-gap / 2),
        "auc": NORMAL.cdf(gap / math.sqrt(2)),
        "threshold": limit,
        "xnorm": _NORM,
        **tars,
    }


def p_value(rng, given):
    """Compares the equal error rates of two models that are equally good."""
    distances, same, sides = pairs(rng, *PAIRS["sparse"][:4], models=2)
    scores = [PairScores(one, same, None) for one in distances]
    measures = [PairStatistics(one, folds=0).measure for one in scores]
    return bootstrap.compare(*measures, sides, given)["eer"][2]


def of_groups(rng, given):
    """Returns {error: whether the intervals of all groups contain the true rates}."""
    parts, first = [], 0
    for number, sizes in enumerate(GROUPS):
        (distances,), same, sides = pairs(rng, *sizes)
        parts.append((distances, same, *(sides + first), np.full(len(same), number)))
        first += sizes[0]
    distances, same, left, right, group = map(np.concatenate, zip(*parts, strict=True))
    scores = PairScores(distances, same, None)
    limit = PairStatistics(scores, folds=0).curve().threshold(_GROUPS_FAR)
    names = np.tile(group.astype(str), (2, 1))
    people = People(np.stack([left, right]), "", names)
    found = groups.rates_of_groups(scores, limit, people, given)
    place = (limit - _MEAN) / _DEVIATION
    truth = {"fnmr": NORMAL.cdf(-place), "fmr": NORMAL.cdf(place - GROUPS[0][3])}
    hits = {}
    for error, rate in truth.items():
        known = (x for x in found[error]["groups"].values() if x["low"] is not None)
        hits[f"{error} of all groups"] = all(
            x["low"] <= rate <= x["high"] for x in known
        )
    return hits


def of_calibration(rng, given):
    """Returns whether the interval of Cllr contains that of the true LLRs."""
    gap = PAIRS["sparse"][3]
    (distances,), same, sides = pairs(rng, *PAIRS["sparse"][:4])
    llrs = calibration.held_out(1 - distances / 2, same, sides, "logistic")
    found = bootstrap.intervals(
        {"cllr": calibration.cllr(llrs, same)},
        lambda weights: {"cllr": calibration.cllr(llrs, same, weights)},
        sides,
        given,
    )["cllr"]
    # Both kinds of pairs are normal with the same variance, so that LLRs are a line.
    scores = np.linspace(-8, 8, 4001)
    density = np.exp(-(scores**2) / 2)
    costs = np.logaddexp(0, gap * scores - gap**2 / 2) / math.log(2)
    return found.low <= density @ costs / density.sum() <= found.high


def search(rng):
    """Simulates a search; returns (`Search`, people of the probes, true values)."""
    images = 1 + np.minimum(rng.pareto(1.3, _SEARCHED), 30).astype(int)
    people = np.repeat(np.arange(_SEARCHED), images)
    mated = people < _SEARCHED // 2
    of_people, noise = rng.normal(size=_SEARCHED)[people], rng.normal(size=len(people))
    standard = math.sqrt(_PEOPLE) * of_people + math.sqrt(1 - _PEOPLE) * noise
    others = rng.poisson(np.exp(_OTHERS + _SLOPE * standard))
    found = Search(
        mated,
        np.where(mated, 1 + others, 0),
        np.where(mated, _MATE + standard, np.nan).astype(np.float32),
        np.where(mated, -np.inf, standard).astype(np.float32),
        1000,
    )
    return found, people, search_rates()


@functools.cache
def search_rates():
    """Integrates the true rates of `search` over the scores of mates."""
    scores = np.linspace(-8, 8, 4001)
    density = np.exp(-(scores**2) / 2)
    density /= density.sum()
    mean = np.exp(_OTHERS + _SLOPE * scores)
    terms = [np.exp(-mean)]
    for k in range(1, LISTED):
        terms.append(terms[-1] * mean / k)
    within = np.cumsum(terms, axis=0)
    truth = {f"rank_{k}": float(density @ within[k - 1]) for k in (1, 5, 10)}
    for rate in _FPIRS:
        found = density * (scores + _MATE > NORMAL.inv_cdf(1 - rate))
        truth[f"tpir@fpir={rate:.0e}"] = float(found @ within[0])
        truth[f"fnir@fpir={rate:.0e}"] = float(1 - found @ within[-1])
    return truth


def closed_set(rng):
    """Simulates ranks of images; returns (ranks, classes, true values)."""
    found, people, truth = search(rng)
    ranks = found.ranks[found.mated]
    return ranks, people[found.mated], {f"top_{k}": truth[f"rank_{k}"] for k in (1, 5)}


if __name__ == "__main__":
    main(options.parse(CoverageCase, __doc__, sys.argv[1:]))
