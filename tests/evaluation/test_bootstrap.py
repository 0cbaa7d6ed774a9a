"""Intervals by identity: the weights of pairs, against pairs drawn one by one."""

import functools

import numpy as np
import pytest

from benchmarks import coverage
from plsc_tf.evaluation import bootstrap, roc, set_report
from plsc_tf.evaluation.report import Options
from plsc_tf.evaluation.roc import PairStatistics
from plsc_tf.evaluation.verification import PairScores, People


def scores_of(seed, num_pairs=400):
    """Pairs of 30 people, whose same pairs are alike to a degree of their own."""
    rng = np.random.default_rng(seed)
    left, right = rng.integers(0, 30, (2, num_pairs))
    right = np.where(np.arange(num_pairs) % 2 == 0, left, right)
    same, ease = left == right, rng.normal(size=30)
    distances = np.where(same, 1.0 + 0.3 * ease[left], 1.8)
    distances = np.clip(distances + 0.3 * rng.normal(size=num_pairs), 0, 3.99)
    return PairScores(np.round(distances, 2), same, rng.uniform(5, 9, (2, num_pairs)))


def test_weights_are_those_of_pairs_drawn_one_by_one():
    sides = np.array([[0, 0, 1, 2], [0, 1, 2, 2]])
    weights = bootstrap.weights(sides, np.array([2.0, 3.0, 0.0]))
    # Person 0 came twice and person 1 three times: 2 same pairs, 2 * 3 different ones.
    np.testing.assert_array_equal(weights, [2, 6, 0, 0])


def test_measuring_with_weights_equals_repeating_the_pairs():
    scores = scores_of(seed=0)
    counts = np.random.default_rng(1).integers(0, 4, len(scores.same))
    found = PairStatistics(scores, far=0.1).measure(counts.astype(float))
    repeated = np.repeat(scores.distances, counts), np.repeat(scores.same, counts)
    points = PairStatistics(PairScores(*repeated, None), folds=0).curve()
    assert found["auc"] == pytest.approx(roc.area_under_curve(points), abs=1e-12)
    assert found["eer"] == pytest.approx(roc.equal_error_rate(points), abs=1e-12)
    assert found["tar@far=1e-01"] == pytest.approx(points.tar(0.1), abs=1e-12)
    assert found["calibrated_threshold"] == points.threshold(0.1)
    norms = np.repeat(scores.norms, counts, axis=1)
    assert found["xnorm"] == pytest.approx(np.mean(norms))


def test_weighted_folds_follow_the_protocol():
    scores = scores_of(seed=5)
    weights = np.random.default_rng(2).integers(0, 4, len(scores.same)).astype(float)
    accuracies, vals = [], []
    for test in np.array_split(np.arange(len(weights)), 10):
        train = np.setdiff1d(np.arange(len(weights)), test)
        grid = np.arange(0, 4, 0.01)
        distances, same = scores.distances[train], scores.same[train]
        hits = [weights[train] @ ((distances < t) == same) for t in grid]
        right = (scores.distances[test] < grid[np.argmax(hits)]) == scores.same[test]
        accuracies.append(np.average(right, weights=weights[test]))
        negatives = train[~scores.same[train]]
        grid = np.arange(0, 4, 0.001)
        rates = [
            weights[negatives] @ (scores.distances[negatives] < t) for t in grid
        ] / weights[negatives].sum()
        last = max(i for i, rate in enumerate(rates) if rate <= 1e-3)
        step = (1e-3 - rates[last]) / (rates[last + 1] - rates[last])
        positives = test[scores.same[test]]
        accepted = scores.distances[positives] < 0.001 * (last + step)
        vals.append(np.average(accepted, weights=weights[positives]))
    found = PairStatistics(scores).measure(weights)
    assert found["accuracy"] == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert found["val_at_far"] == pytest.approx(np.mean(vals), abs=1e-9)
    assert 0.6 < found["accuracy"] < 0.95, "the case must not be trivial"


def test_interval_of_a_rate_is_that_of_its_log_odds_in_explicit_draws():
    people = np.append(np.arange(25), np.arange(5))  # five have two items, 20 have one
    values = np.random.default_rng(0).uniform(size=30)
    figure = bootstrap.intervals(
        {"mean": values.mean()},
        lambda weights: {"mean": np.average(values, weights=weights)},
        people,
        Options(samples=500, seed=7),
    )["mean"]
    rng, drawn = np.random.default_rng(7), []
    for _ in range(500):
        counts = np.bincount(rng.integers(0, 25, 25), minlength=25)[people]
        drawn.append(counts @ values / counts.sum())
        rng.poisson(1.0, 25)
    value = values.mean()
    # Student's quantile: (20 + 5 * 4)^2 / (20 + 5 * 16) = 16 degrees of freedom. Items
    # of a person are alike: 1 - 2 * (60 / 30^3) / (40 / 30^2) + 40 / 30^2 = 17 / 18 of
    # the variance.
    half = 2.1199 * np.sqrt(18 / 17) * np.std(drawn) / (value * (1 - value))
    odds = value / (1 - value) * np.exp([-half, half])
    assert [figure.low, figure.high] == pytest.approx(odds / (1 + odds), rel=1e-3)


def test_what_is_particular_to_a_couple():
    values, ends = np.random.default_rng(0).normal(size=400), np.arange(400)
    sides = np.stack([2 * ends, 2 * ends + 1])

    def measure(weights):
        return {"mean": np.average(values, weights=weights)}

    found = bootstrap.standard_errors(["mean"], measure, sides, Options(2000))["mean"]
    # Drawing people gives three times the variance; twice the couples' is subtracted.
    assert found**2 == pytest.approx(values.var() / 400, rel=0.3)


def test_the_interval_of_a_threshold_holds_for_all_that_accept_the_same_pairs():
    scores, sides = scores_of(seed=0), np.tile(np.arange(400) % 30, (2, 1))
    report = set_report.of_pairs("", scores, People(sides, ""), Options(200, far=0.1))
    names = ("squared_l2", "squared_l2_low", "squared_l2_high")
    value, low, high = map(report.threshold.get, names)
    accepted = max(x for x in scores.distances[~scores.same] if x < value)
    assert accepted - low == pytest.approx(high - value) != 0


def test_intervals_contain_the_truth_and_p_values_are_uniform():
    draw = functools.partial(coverage.outcome, "sparse", samples=60)
    hits = [hit for seed in range(40) for hit in draw(seed).values()]
    assert 0.9 < np.mean(hits) < 0.99
    p = [coverage.p_value(np.random.default_rng(s), Options(40)) for s in range(100)]
    distance = np.abs(np.sort(p) - (np.arange(100) + 0.5) / 100).max()
    assert distance < 0.158  # Kolmogorov and Smirnov: 1% of uniform samples exceed it


@pytest.mark.parametrize(
    ("identities", "measure", "note"),
    [
        (9, lambda weights: {"x": weights[0]}, "9 identities; needs 10"),
        (50, lambda weights: {"x": 1.0}, "draws of identities give the same"),
        (50, lambda weights: {}, "undefined for many draws"),
    ],
)
def test_what_the_data_cannot_support_has_no_interval(identities, measure, note):
    identities = np.arange(identities)
    figure = bootstrap.intervals({"x": 1.0}, measure, identities, Options(50))["x"]
    assert (figure.value, figure.low, figure.high) == (1.0, None, None)
    assert note in figure.note


# A list of 14 MB would have taken days.
@pytest.mark.parametrize("chain", [np.arange(200_001), -np.arange(200_001) % 200_001])
def test_a_long_chain_of_pictures_takes_few_passes(chain):
    assert not bootstrap.linked(200_001, chain[:-1], chain[1:]).any()
