"""Labels that look wrong: against all pairs in memory, and with planted faults."""

import numpy as np
import pytest

from plsc_tf.evaluation import label_noise
from plsc_tf.evaluation.embedding_store import EmbeddingStore
from plsc_tf.flags.classes import Classes
from plsc_tf.jobs.classes import noise


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def make_store(folder, rows, labels, classes, batch=7):
    store = EmbeddingStore(str(folder), classes, rows.shape[1])
    for start in range(0, len(rows), batch):
        store.add(rows[start : start + batch], labels[start : start + batch])
    store.finish()
    return store


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks that cut through classes and pictures of small sets."""
    monkeypatch.setattr(label_noise, "_CLASSES", 7)
    monkeypatch.setattr(label_noise, "_PICTURES", 5)


@pytest.fixture
def drawn(tmp_path):
    """(store, embeddings, labels): 23 classes of 0 to 8 pictures in 6 dimensions."""
    random = np.random.default_rng(3)
    counts = random.integers(1, 9, 23)
    counts[[4, 11]] = 0, 1
    labels = random.permutation(np.repeat(np.arange(23), counts))
    rows = random.normal(size=(23, 6))[labels] + random.normal(size=(len(labels), 6))
    rows = unit(rows).astype(np.float16).astype(np.float32)
    return make_store(tmp_path, rows, labels, 23), rows, labels


def test_agreement_is_the_mean_cosine_of_two_pictures(drawn):
    store, rows, labels = drawn
    found = store.agreement
    for label in np.flatnonzero(store.counts > 1):
        own = rows[labels == label].astype(np.float64)
        expected = (own @ own.T)[np.triu_indices(len(own), 1)].mean()
        if expected > 0.3:  # far lower ones are raised
            assert found[label] == pytest.approx(expected, abs=2e-3)
    assert found[4] == found[11] == pytest.approx(np.median(found), abs=0.2)


def test_pairs_are_those_of_the_whole_matrix(drawn, small_blocks):
    store, rows, labels = drawn
    agreement, expected = store.agreement, {}
    for a in range(23):
        for b in range(a + 1, 23):
            if (across := rows[labels == a] @ rows[labels == b].T).size:
                alike = across.mean() / np.sqrt(agreement[a] * agreement[b])
                if alike >= 0.5:
                    expected[a, b] = alike
    found = label_noise.closest_pairs(store)
    listed = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert set(listed) == set(expected) and len(listed) > 5
    wanted = [expected[pair] for pair in listed]
    np.testing.assert_allclose(found.similarity, wanted, rtol=1e-4)
    assert np.all(np.diff(found.similarity) <= 0)
    # Few of them may be kept, and they are the best ones.
    few = label_noise.closest_pairs(store, most=3)
    np.testing.assert_array_equal(few.similarity, found.similarity[:3])


def test_every_picture_is_compared_with_all_other_centers(drawn, small_blocks):
    store, rows, labels = drawn
    identities = np.arange(23)
    identities[9] = 2
    found = label_noise.nearest_centers(store, identities)
    sums = np.stack([rows[labels == k].sum(0) for k in range(23)])
    for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
        if np.count_nonzero(labels == label) == 1:
            assert np.isnan(found.own[number]) and np.isnan(found.excess[number])
        else:
            own = row @ unit(sums[label] - row)
            assert found.own[number] == pytest.approx(own, abs=1e-4)
        others = {k: row @ unit(sums[k]) for k in set(labels.tolist()) - {label}}
        if label in (2, 9):
            others.pop(11 - label, None)
        best = max(others, key=others.get)
        assert found.label[number] == best
        assert found.other[number] == pytest.approx(others[best], abs=1e-4)


def test_two_groups_are_found_and_none_is_too_small():
    random = np.random.default_rng(0)
    sides = np.array([True] * 12 + [False] * 8)
    directions = np.where(sides[:, None], [1.0, 0, 0], [0, 1.0, 0])
    rows = unit(directions + 0.2 * random.normal(size=(20, 3))).astype(np.float32)
    found = label_noise.two_groups(rows)
    assert np.array_equal(found, sides) or np.array_equal(found, ~sides)
    # One stranger is not a group: at least a fifth is.
    lone = np.tile(np.float32([1, 0, 0]), (20, 1))
    lone[3] = [0, 0, 1]
    found = label_noise.two_groups(lone)
    assert 4 <= np.count_nonzero(found) <= 16


def test_scores_are_deviations_from_classes_of_like_size():
    alike = np.concatenate([np.linspace(0.9, 1.0, 41), np.linspace(0.5, 0.7, 41)])
    found = label_noise.split_scores(alike, np.array([40] * 41 + [5] * 41))
    # Median 0.95, median absolute deviation 0.025.
    assert found[0] == pytest.approx(0.05 / (1.4826 * 0.025))
    assert found[41] == pytest.approx(0.1 / (1.4826 * 0.05))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """(what is found, what was planted) among 120 identities of 20 pictures."""
    random = np.random.default_rng(11)
    identities = unit(random.normal(size=(120, 64)))
    shown = np.repeat(np.arange(120), 20)
    labels = shown.copy()
    labels[labels == 1] = 0  # two identities in one class
    labels[np.flatnonzero(shown == 2)[::2]] = 1  # one identity in two classes
    flipped = random.choice(len(labels), len(labels) // 20, replace=False)
    labels[flipped] = (labels[flipped] + random.integers(1, 120, len(flipped))) % 120
    rows = unit(identities[shown] + 0.08 * random.normal(size=(len(shown), 64)))
    store = make_store(
        tmp_path_factory.mktemp("planted"), rows.astype(np.float32), labels, 120, 100
    )
    return noise.find(store, Classes()), np.sort(flipped)


def test_an_identity_in_two_classes_is_found(planted):
    found, _ = planted
    assert found.duplicates == 1
    assert found.pairs[["first", "second"]][0].tolist() == (1, 2)


def test_flipped_labels_are_found(planted):
    found, flipped = planted
    wrong = np.flatnonzero(found.mislabelled)
    right = np.intersect1d(wrong, flipped)
    # A flip between the two classes of one identity cannot show.
    assert len(right) >= len(flipped) - 1
    assert len(wrong) == len(right)


def test_two_identities_in_one_class_are_found(planted):
    found, _ = planted
    assert found.splits.label[0] == 0
    assert found.splits.score[0] > 6 > found.splits.score[1]
    sides = found.sides[found.store.labels == 0]
    assert min(np.count_nonzero(sides == side) for side in (1, 2)) >= 15


@pytest.mark.parametrize(
    ("labels", "rows", "message"),
    [
        ([5], [[1.0, 0]], "0 to 4. Received: labels=5 to 5"),
        ([0], [[np.nan, 0]], "must be finite"),
    ],
)
def test_labels_and_numbers_are_checked(tmp_path, labels, rows, message):
    store = EmbeddingStore(str(tmp_path), 5, 2)
    with pytest.raises(ValueError, match=message):
        store.add(np.array(rows), np.array(labels))
    with pytest.raises(ValueError, match="no images"):
        store.finish()
