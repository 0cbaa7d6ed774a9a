"""Error rates by group at one threshold, and their summaries."""

import pytest

from plsc_tf.evaluation import groups
from plsc_tf.evaluation.report import Figure


def test_the_summary_of_three_groups_and_one_that_is_too_small():
    rates = {"a": Figure(0.01), "b": Figure(0.02), "c": Figure(0.04)}
    found = groups.summarize(rates | {"d": groups.error_rate(1, 500, 9, 0.1)})
    assert found["groups"]["d"]["note"] == "9 people; needs 10"
    # The geometric mean is 0.02; the differences are 1, 2 and 3 hundredths, each twice.
    ratios = [found["groups"][name]["over_geometric_mean"] for name in rates]
    assert ratios == pytest.approx([0.5, 1, 2])
    assert found["gini"] == pytest.approx(0.12 / (2 * 3 * 2 * 0.07 / 3))
    best = found["max_over_geometric_mean"], found["max_over_best"]
    assert (found["worst"], found["max"], *best) == ("c", 0.04, pytest.approx(2), 4)


def test_groups_without_errors_or_without_enough_expected_ones():
    rates = {"a": Figure(0.0), "b": groups.error_rate(20, 1000, 50, 0.01)}
    found = groups.summarize(rates)
    assert (found["max"], found["gini"], found["max_over_best"]) == (0.02, 1, None)
    assert "a group has no errors" in found["note"]
    few = groups.error_rate(3, 900, 50, 0.01)
    assert (few.value, few.note) == (None, "based on 9 expected errors; needs 10")
    assert groups.summarize({"a": few, "b": rates["b"]})["gini"] is None
