"""Calibration: likelihood ratios of cosines are scikit-learn's, and true."""

import json

import numpy as np
import pytest

from plsc_tf.evaluation import calibration, set_report
from plsc_tf.evaluation.report import Options
from plsc_tf.evaluation.verification import PairScores, People
from tests.evaluation.saved_embeddings import evaluate, write_lists
from tests.evaluation.test_command import people_rows

isotonic = pytest.importorskip("sklearn.isotonic")
linear_model = pytest.importorskip("sklearn.linear_model")


def simulated(people=3000, seed=0):
    """(cosines, same, sides, true LLRs) of people with unequal numbers of images."""
    rng = np.random.default_rng(seed)
    own = np.repeat(np.arange(people), 1 + np.arange(people) % 20)
    # Pairs of one person have something in common; deviations are 0.1 in all.
    alike = 0.08 * rng.normal(size=people)[own] + 0.06 * rng.normal(size=len(own))
    sides = np.concatenate([[own, own], rng.integers(0, people, (2, len(own)))], 1)
    cosines = np.concatenate([0.4 + alike, 0.1 * rng.normal(size=len(own))])
    # ln N(c; 0.4, 0.1) / N(c; 0, 0.1) = (0.4 c - 0.08) / 0.01
    return cosines, np.repeat([True, False], len(own)), sides, 40 * cosines - 8


def test_llrs_are_those_of_scikit_learn():
    cosines, same, *_ = simulated(300)
    cosines = cosines.round(3)  # with ties
    found = calibration.fit(cosines, same, "logistic")
    line = linear_model.LogisticRegression(
        C=np.inf, class_weight="balanced", solver="newton-cg", tol=1e-12
    ).fit(cosines[:, None], same)
    expected = line.decision_function(cosines[:, None])
    np.testing.assert_allclose(found.llr(cosines), expected, rtol=0, atol=1e-9)
    curve = isotonic.IsotonicRegression(out_of_bounds="clip").fit(cosines, same)
    expected, share = curve.predict(cosines), same.mean()
    found = calibration.fit(cosines, same, "isotonic", prior=share)
    mixed = (expected > 0) & (expected < 1)
    probabilities = found.probability(cosines)
    np.testing.assert_allclose(probabilities[mixed], expected[mixed], atol=1e-9)
    # Where there are pairs of one kind only, it is as if there were one of the other.
    bounds = -np.log(1 + same.sum()), np.log(1 + (~same).sum())
    assert found.llr([-1, 1]) == pytest.approx(bounds)


def test_cllr_by_hand():
    # The mean of the costs of odds of 3 for the truth, and of 1.
    found = calibration.cllr(np.log([3, 1]), np.array([True, False]))
    assert found == pytest.approx((np.log2(4 / 3) + 1) / 2)
    same = np.array([False, False, True, True])
    # Only the pairs in the middle are in the wrong order: LLR 0, and certainty beside.
    lowest = calibration.min_cllr(np.array([0.1, 0.4, 0.35, 0.8]), same)
    assert lowest == pytest.approx(0.5)


@pytest.mark.parametrize("method", ["logistic", "isotonic"])
def test_probabilities_of_other_people_are_true(method):
    cosines, same, sides, truth = simulated()
    known = (sides % 2 == 0).all(axis=0)
    others = (sides % 2 == 1).all(axis=0)
    prior = same[others].mean()
    found = calibration.fit(cosines[known], same[known], method, prior)
    probabilities = found.probability(cosines[others])
    bins = np.minimum((10 * probabilities).astype(int), 9)
    gaps = np.bincount(bins, probabilities - same[others], 10)
    assert np.abs(gaps).sum() / len(bins) < 0.01
    expected = 1 / (1 + np.exp(-truth[others]) * (1 - prior) / prior)
    assert np.abs(probabilities - expected).mean() < 0.01
    best = calibration.min_cllr(cosines, same)
    cost = calibration.cllr(calibration.held_out(cosines, same, sides, method), same)
    assert best < cost < calibration.cllr(truth, same) + 0.005


@pytest.mark.parametrize("attributes", [False, True])
def test_the_card_has_the_calibration(tmp_path, attributes):
    rows, ids = people_rows()
    np.save(tmp_path / "faces.npy", rows)
    # Rows without names are numbers.
    left, right = write_lists(tmp_path, range(len(rows)), ids)
    options = {"pair_lists": (str(tmp_path / "pairs.txt"),), "calibrate": "isotonic"}
    options |= {"card_dir": str(tmp_path / "card"), "bootstrap_samples": 50}
    groups, kinds = tmp_path / "groups.txt", np.where(ids % 2, "odd", "even")
    kinds[:4] = "few"
    groups.write_text("".join(f"{k} {kind}\n" for k, kind in enumerate(kinds)))
    options |= {"groups": str(groups), "calibration_prior": 0.01}
    if attributes:  # of pairs
        lines = (tmp_path / "pairs.txt").read_text().splitlines()
        of = np.where(kinds[left] == kinds[right], kinds[left], "mixed")
        lines = [f"{line} {one}" for line, one in zip(lines, of, strict=True)]
        (tmp_path / "pairs.txt").write_text("\n".join(lines))
        options["groups"] = "pairs"
    table = evaluate(tmp_path, **options, card_far=0.1)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines, same = np.sum(unit[left] * unit[right], axis=1), ids[left] == ids[right]
    found = json.loads((tmp_path / "card/card.json").read_text())["sets"]["pairs"]
    stored = calibration.Calibration(**found["threshold"]["calibration"])
    expected = calibration.fit(cosines, same, "isotonic", prior=0.01)
    np.testing.assert_allclose(stored.llr(cosines), expected.llr(cosines), atol=1e-9)
    assert (stored.method, stored.prior) == ("isotonic", 0.01)
    lowest, cllr = calibration.min_cllr(cosines, same), found["figures"]["cllr"]
    assert table["pairs: minimal Cllr"] == f"{lowest:.5f}"
    assert lowest < cllr["value"] < 1 and cllr["low"] < cllr["value"] < cllr["high"]
    odd = (kinds[left] == "odd") & (kinds[right] == "odd")
    given, own = (cosines[odd], same[odd]), stored.groups["odd"]
    expected = calibration.fit(*given, "isotonic")
    found = calibration.Calibration("isotonic", 0.5, own["cosines"], own["llrs"])
    np.testing.assert_allclose(found.llr(cosines), expected.llr(cosines), atol=1e-9)
    assert calibration.min_cllr(*given) < min(own["cllr"], own["own_cllr"]) < 1
    assert "needs 10" in stored.groups["few"]["note"]
    assert "Cllr by group" in (tmp_path / "card/card.html").read_text()


def test_pairs_that_cannot_be_calibrated_are_not_available():
    cosines, same, sides, _ = simulated(60)
    easy = PairScores(2 - 2 * (0.1 * cosines + 0.5 * same), same, np.ones(sides.shape))
    options = Options(far=0.1, calibrate="logistic")
    report = set_report.of_pairs("easy", easy, People(sides, ""), options)
    assert "no threshold separates" in str(report.figures["cllr"])
    assert "calibration" not in report.threshold
    options = Options(far=0.1, calibrate="isotonic")
    report = set_report.of_pairs("easy", easy, People(sides, ""), options)
    assert report.figures["min_cllr"].value == 0 < report.figures["cllr"].value
