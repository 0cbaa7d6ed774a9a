"""Orders of an epoch: complete, balanced or in groups, from (seed, epoch) alone."""

import numpy as np
import pytest

from plsc_tf.data import sampling
from plsc_tf.options.settings import known_options

BALANCED = {"sampling": "class_balanced"}
GROUPS = {"sampling": "per_identity", "images_per_identity": 4}
# Classes of 1 to 200 images, with gaps between the labels, in mixed order.
SIZES = {3: 1, 4: 2, 7: 7, 20: 50, 21: 200, 90_000: 40}
LABELS = np.repeat(list(SIZES), list(SIZES.values()))
LABELS = np.random.default_rng(0).permutation(LABELS)


def indices(labels, **order):
    """The indices of an epoch."""
    order = sampling.Order(**order)
    return order.indices(len(labels), lambda: np.asarray(labels))


def _orders(**options):
    chosen = (1, 0), (1, 0), (1, 1), (2, 0)
    return [indices(LABELS, seed=seed, epoch=n, **options) for seed, n in chosen]


@pytest.mark.parametrize("name", sampling.SAMPLINGS)
def test_an_order_follows_from_seed_and_epoch(name):
    first, again, next_epoch, other_seed = _orders(sampling=name)
    assert first.shape == (300,) and first.dtype == np.int64
    assert first.min() >= 0 and first.max() < 300
    np.testing.assert_array_equal(first, again)
    assert (first != next_epoch).mean() > 0.5 < (first != other_seed).mean()


def test_class_balanced_draws_classes_and_their_images_equally_often():
    for order in _orders(sampling="class_balanced"):
        # 300 draws of 6 classes: 50 each.
        labels, counts = np.unique(LABELS[order], return_counts=True)
        assert labels.tolist() == list(SIZES) and counts.tolist() == [50] * 6
        for label, size in SIZES.items():
            drawn = np.bincount(order[LABELS[order] == label], minlength=300)
            drawn = drawn[LABELS == label]
            assert len(drawn) == size and drawn.max() - drawn.min() <= 1


def test_class_balanced_is_mixed_and_spreads_what_is_left_over():
    labels = np.repeat(np.arange(4), [3, 3, 3, 1])  # 10 draws of 4 classes
    extra = set()
    for epoch in range(20):
        order = indices(labels, epoch=epoch, **BALANCED)
        counts = np.bincount(labels[order])
        assert sorted(counts) == [2, 2, 3, 3]
        extra |= set(np.flatnonzero(counts == 3))
    assert extra == {0, 1, 2, 3}
    order = _orders(sampling="class_balanced")[0]
    assert (np.diff(LABELS[order]) == 0).mean() < 0.3


def test_a_large_class_shows_all_its_images_within_some_epochs():
    seen = set()
    for epoch in range(40):
        order = indices(LABELS, epoch=epoch, **BALANCED)
        seen |= set(order[LABELS[order] == 21])
    # 50 of 200 in each epoch: an image is missed 40 times with 0.75 ** 40 = 1e-5.
    assert len(seen) == 200


def test_per_identity_makes_groups_of_one_class_each():
    order = indices(LABELS, **GROUPS)
    groups = LABELS[order].reshape(-1, 4)
    assert (groups == groups[:, :1]).all()
    # Within a group images differ, as long as the class has so many.
    for group in order.reshape(-1, 4):
        size = SIZES[LABELS[group[0]]]
        assert len(set(group.tolist())) >= min(4, size) - (size % 4 > 0) * 3


def test_per_identity_takes_nearly_every_image_once():
    order = indices(np.repeat(np.arange(100), 8), **GROUPS)
    np.testing.assert_array_equal(np.sort(order), np.arange(800))


def test_classes_are_spread_over_the_epoch():
    order = indices(LABELS, sampling="per_identity", images_per_identity=2)
    places = np.flatnonzero(LABELS[order] == 21) / 300
    assert np.histogram(places, 4, (0, 1))[0].min() > 35


@pytest.mark.parametrize("largest", [5, 70_000, 2_000_000])
def test_any_range_of_labels_is_grouped(largest):
    labels = np.random.default_rng(0).integers(0, largest + 1, 1000) - 3
    labels[0] = largest
    order = indices(labels, sampling="per_identity", images_per_identity=1)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    counts = np.unique(labels[indices(labels, **BALANCED)], return_counts=True)[1]
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("options", [{"images_per_identity": 0}, {"batch_size": 10}])
def test_impossible_groups_are_refused(options):
    with pytest.raises(ValueError, match="positive multiple"):
        indices(LABELS, **{**GROUPS, **options})


def test_the_flags_choices_are_the_samplings():
    assert known_options()["sampling"].choices == sampling.SAMPLINGS
