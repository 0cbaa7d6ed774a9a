"""1:N identification, by hand and against sorting all scores in float64."""

import numpy as np
import pytest

from plsc_tf.evaluation import identification


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def plain_search(gallery, gallery_ids, probes, probe_ids, by_entry):
    """Every score, in float64: (rank, mate's score, strongest other) of each probe."""
    result = []
    for row, own in zip(unit(probes) @ unit(gallery).T, probe_ids, strict=True):
        others = row[gallery_ids != own]
        if not by_entry:
            names = np.setdiff1d(gallery_ids, [own])
            others = np.array([row[gallery_ids == name].max() for name in names])
        mate = row[gallery_ids == own].max() if own in gallery_ids else np.nan
        rank = 0 if np.isnan(mate) else 1 + np.sum(others >= mate)
        result.append((rank, mate, others.max()))
    return np.array(result).T


@pytest.mark.parametrize(("entries", "by_entry"), [(1, False), (3, False), (3, True)])
def test_search_equals_sorting_all_scores(monkeypatch, entries, by_entry):
    monkeypatch.setattr(identification, "PROBES", 16)
    monkeypatch.setattr(identification, "ENTRIES", 7)
    rng = np.random.default_rng(0)
    people = rng.normal(size=(40, 12))
    gallery_ids = rng.permutation(np.repeat(np.arange(0, 40, 2), entries))
    probe_ids = rng.integers(0, 40, 90)
    gallery = 5 * (people[gallery_ids] + 0.8 * rng.normal(size=(len(gallery_ids), 12)))
    probes = people[probe_ids] + 0.8 * rng.normal(size=(90, 12))
    sides = gallery, gallery_ids, probes, probe_ids
    found = identification.search(*sides, by_entry=by_entry)
    ranks, scores, strongest = plain_search(*sides, by_entry)
    np.testing.assert_array_equal(found.ranks, ranks)
    np.testing.assert_allclose(found.scores, scores, atol=1e-6)
    np.testing.assert_allclose(found.strongest, strongest, atol=1e-6)
    np.testing.assert_array_equal(found.mated, probe_ids % 2 == 0)
    assert found.num_identities == 20
    assert 1 < ranks.max() < 60, "the case must not be trivial"


def test_ties_count_against_the_model():
    same, ids = np.ones((5, 4), np.float32), np.arange(5)
    assert identification.search(same, ids, same, ids).ranks.tolist() == [5] * 5


def test_rates_by_hand():
    found = identification.Search(
        mated=np.array([True, True, True, True, False]),
        ranks=np.array([1, 1, 2, 6, 0]),
        scores=np.array([0.9, 0.5, 0.8, 0.1, np.nan]),
        strongest=np.array([0.2, 0.4, 0.9, 0.9, 0.6]),
        num_identities=8,
    )
    assert identification.rank_rates(found) == {1: 0.5, 5: 0.75}
    curve = identification.rank_rates(found, range(1, 101))
    assert [*curve.values()] == [0.5, 0.75, 0.75, 0.75, 0.75, 1, 1]
    weighted = identification.rank_rates(found, weights=np.array([3, 0, 1, 0, 1.0]))
    assert weighted == {1: 0.75, 5: 1.0}


def open_search(strongest, mates=(0.95, 0.7, 0.5), ranks=(1, 1, 1)):
    return identification.Search(
        np.arange(len(mates) + len(strongest)) < len(mates),
        np.array([*ranks, *np.zeros(len(strongest), int)]),
        np.array([*mates, *np.full(len(strongest), np.nan)]),
        np.array([*np.zeros(len(mates)), *strongest]),
        10,
    )


def test_open_set_rates_by_hand():
    # 100 strangers score 0.00 ... 0.99. FPIR 0.1 lets ten pass: 0.90 ... 0.99.
    found = open_search(np.arange(100) / 100)
    ((rate, (tpir, threshold)),) = identification.tpir_at_fpir(found).items()
    assert (rate, tpir, threshold) == (0.1, pytest.approx(1 / 3), 0.89)
    # The mate that does not come first is no hit, whatever its score.
    found = open_search(np.arange(100) / 100, ranks=(2, 1, 1))
    assert identification.tpir_at_fpir(found)[0.1][0] == 0.0
    weights = np.ones(103)
    weights[0] = 2
    found = open_search(np.arange(100) / 100)
    curve = identification.open_set(found).curve(weights)
    assert curve.tar(0.1) == pytest.approx(2 / 4)


def test_miss_rates_of_nist_by_hand():
    # Above 0.89, the threshold of FPIR 0.1, is one mate, which comes second.
    missed = identification.misses(open_search(np.arange(100) / 100, ranks=(2, 1, 1)))
    assert missed["rank"] == [*range(1, 51)]
    assert missed["no threshold"] == pytest.approx([1 / 3] + [0] * 49)
    assert missed["FPIR=0.1"] == pytest.approx([1] + [2 / 3] * 49)
    assert "FPIR=0.003" not in missed  # needs 3,334 strangers
    assert "FPIR=0.003" in identification.misses(open_search(np.linspace(0, 1, 3334)))


def test_rates_of_fewer_than_ten_strangers_are_absent():
    for strangers, rates in ((1000, {0.1, 0.01}), (999, {0.1}), (0, set())):
        found = open_search(np.linspace(0, 1, strangers))
        assert set(identification.tpir_at_fpir(found)) == rates


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gallery_ids": np.arange(2)}, "gallery must have .*rows=3, identities=2"),
        ({"gallery": np.full((3, 4), np.nan)}, "finite.*diverged"),
        ({"probes": np.zeros((0, 4)), "probe_ids": []}, "probes must have"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = {"gallery": np.ones((3, 4)), "gallery_ids": np.arange(3)}
    arguments |= {"probes": np.ones((2, 4)), "probe_ids": np.arange(2)}
    with pytest.raises(ValueError, match=message):
        identification.search(**{**arguments, **change})
