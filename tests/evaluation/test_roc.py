"""The curve of all thresholds, against counts."""

import numpy as np
import pytest

from plsc_tf.evaluation import roc
from plsc_tf.evaluation.verification import PairScores


def points_of(same, different):
    distances = np.array([*same, *different], np.float64)
    return curve(distances, np.arange(len(distances)) < len(same))


def curve(distances, same):
    return roc.PairStatistics(PairScores(distances, same, None), folds=0).curve()


def test_tar_counts_the_pairs_nearer_than_the_first_forbidden_negative():
    # 100 negatives: FAR 0.1 allows ten (0.35), so the threshold is 0.45.
    points = points_of(
        same=[0.1, 0.2, 0.3, 0.4, 0.5], different=[0.35] * 10 + [0.45] * 10 + [3] * 80
    )
    assert roc.tar_at_far(points, rates=[0.1, 0.2]) == {0.1: 0.8, 0.2: 1.0}
    # 0.19 allows 19, but the second ten are tied.
    for rate in (0.1, 0.19):
        assert (points.threshold(rate), points.tar(rate)) == (0.45, 0.8)
    assert points.threshold(1.0) == np.inf


def test_rates_of_fewer_than_ten_false_pairs_are_absent():
    points = points_of(same=[0.1, 0.2], different=np.linspace(1, 2, 10_000))
    assert set(roc.tar_at_far(points)) == {1e-1, 1e-2, 1e-3}
    points = points_of(same=[0.1, 0.2], different=np.linspace(1, 2, 9_999))
    assert set(roc.tar_at_far(points)) == {1e-1, 1e-2}
    assert not roc.supports(1e-3, points.num_different)


def test_equal_error_rate_by_hand():
    # Accepting up to 3.5 takes 1 of 4 negatives and leaves out 1 of 4 positives.
    points = points_of(same=[1, 2, 3, 5], different=[2.5, 6, 7, 8])
    assert roc.equal_error_rate(points) == pytest.approx(0.25)
    assert roc.area_under_curve(points) == pytest.approx(1 - 2 / 16)


def test_curve_equals_counts_at_every_threshold():
    rng = np.random.default_rng(0)
    same = rng.random(3000) < 0.4
    # Rounded, so that there are ties within and between the two kinds.
    distances = np.round(rng.normal(np.where(same, 1.0, 1.6), 0.4), 2)
    points = curve(distances, same)
    accepted = distances <= np.append(-np.inf, np.unique(distances))[:, None]
    far, tar = accepted[:, ~same].mean(1), accepted[:, same].mean(1)
    np.testing.assert_allclose(points.false_accepts, far, atol=1e-15)
    np.testing.assert_allclose(points.true_accepts, tar, atol=1e-15)
    # The Mann-Whitney statistic: how often a pair of the same person is the closer one.
    area = (np.sign(distances[~same][:, None] - distances[same]).mean() + 1) / 2
    assert roc.area_under_curve(points) == pytest.approx(area, abs=1e-12)
    for rate, found in roc.tar_at_far(points).items():
        assert found == pytest.approx(tar[far <= rate].max(), abs=1e-12)
