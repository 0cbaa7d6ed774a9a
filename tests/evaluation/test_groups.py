"""Error rates by group at one threshold, and their summaries."""

import numpy as np
import pytest

from plsc_tf.evaluation import bootstrap, groups
from plsc_tf.evaluation.report import Figure, Options
from plsc_tf.evaluation.verification import PairScores, People


def test_the_summary_of_three_groups_and_one_that_is_too_small():
    rates = {"a": Figure(0.01), "b": Figure(0.02), "c": Figure(0.04)}
    found = groups.summarize(rates | {"d": groups.error_rate(1, 500, 9, 0.1)})
    assert found["groups"]["d"]["note"] == "9 identities; needs 10"
    # The geometric mean is 0.02; the differences are 1, 2 and 3 hundredths, each twice.
    ratios = [found["groups"][name]["over_geometric_mean"] for name in rates]
    assert ratios == pytest.approx([0.5, 1, 2])
    assert found["gini"] == pytest.approx(0.12 / (2 * 3 * 2 * 0.07 / 3))
    best = found["max_over_geometric_mean"], found["max_over_best"]
    assert (found["worst"], found["max"], *best) == ("c", 0.04, pytest.approx(2), 4)


def test_groups_without_errors_or_without_enough_expected_ones():
    rates = {"a": Figure(0.0), "b": groups.error_rate(20, 1000, 50, 0.01)}
    found = groups.summarize(rates)
    assert (found["max"], found["gini"]) == (0.02, 1)
    assert found["groups"]["b"]["value"] == 0.02
    assert not any("over" in name for name in (*found, *found["groups"]["b"]))
    few = groups.error_rate(3, 900, 50, 0.01)
    assert (few.value, few.note) == (None, "based on 9 expected errors; needs 10")
    assert "needs two groups" in groups.summarize({"a": few, "b": rates["b"]})["note"]


def test_rates_of_groups_at_one_threshold():
    rng, count = np.random.default_rng(0), 6000
    sides = rng.integers(0, 80, (2, count))
    sides[1, ::2] = sides[0, ::2]
    same, of = sides[0] == sides[1], np.array(["x", "y", "y", ""])[sides % 4]
    scores = PairScores(rng.normal(np.where(same, 1.0, 1.6), 0.3), same, None)
    found = groups.rates_of_groups(scores, 1.3, People(sides, "", of), Options(100))
    rejected = scores.distances >= 1.3
    for error, kind, wrong in ("fnmr", same, rejected), ("fmr", ~same, ~rejected):
        assert found[error]["groups"].keys() == {"x", "y"}
        for name, one in found[error]["groups"].items():
            expected = wrong[kind & (of == name).all(axis=0)].mean()
            assert one["value"] == pytest.approx(expected)
            assert one["low"] < one["value"] < one["high"]

    own = same & (of == "x").all(axis=0)

    def measure(weights=None):
        return {"": np.average(rejected[own], weights=weights)}

    # Each of two intervals at once has the root of 95%.
    given = sides[:, own], Options(100), 0.95**0.5
    alone = bootstrap.intervals(measure(), measure, *given)[""]
    one = found["fnmr"]["groups"]["x"]
    assert (one["low"], one["high"]) == pytest.approx((alone.low, alone.high))
