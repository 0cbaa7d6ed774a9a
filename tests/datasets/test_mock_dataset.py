"""The drawn data set: reproducible, endless in classes, and not for raw pixels."""

import numpy as np
import pytest

from plsc_tf.data.figures import draw
from plsc_tf.data.load import load, load_val
from plsc_tf.data.readers.layouts import DataRequest

PLAIN = {"image_size": (16, 16), "shuffle": False, "augmentation": None}


def test_a_picture_depends_on_seed_class_and_index_alone():
    picture = draw(0, 5, 2, (32, 24))
    assert picture.shape == (32, 24, 3) and picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, draw(0, 5, 2, (32, 24)))
    for other in ((1, 5, 2), (0, 6, 2), (0, 5, 3)):
        assert np.abs(picture - draw(*other, (32, 24)).astype(int)).mean() > 5


def test_the_pictures_are_the_same_in_every_version():
    # Changing the drawing changes everybody's scores: then correct these on purpose.
    means = [draw(0, label, 0, (64, 64)).mean() for label in (0, 1, 2**40)]
    np.testing.assert_allclose(means, [86.053, 151.210, 59.899], atol=0.02)


def test_source_deals_classes_in_turn_and_batches_equal_draw():
    batches = load("mock", batch_size=4, num_classes=3, num_examples=8, **PLAIN)
    images, labels = next(iter(batches))
    np.testing.assert_array_equal(labels, [0, 1, 2, 0])
    np.testing.assert_array_equal(images[3], draw(0, 0, 1, (16, 16)))
    assert (batches.num_classes, batches.num_examples) == (3, 8)
    assert load("mock", batch_size=1).num_classes == 100


def test_val_split_shows_the_same_classes_in_other_pictures():
    def first(split):
        batches = load("mock", batch_size=1, split=split, num_examples=4, **PLAIN)
        return next(iter(batches))

    (train, label), (val, val_label) = first("train"), first("val")
    assert int(label[0]) == int(val_label[0]) and np.any(train != val)


@pytest.fixture(scope="module")
def pairs():
    return load_val("mock", DataRequest(image_size=(24, 24)), "mock")


def test_pairs_are_balanced_distinct_and_disjoint_between_folds(pairs):
    assert len(pairs) == 2000
    folds = pairs.same.reshape(10, 200)
    np.testing.assert_array_equal(folds.sum(axis=1), np.full(10, 100))
    assert len(set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))) == 2000
    # Four pictures per identity, 20 identities per fold.
    people = np.stack([pairs.left, pairs.right]) // 4
    np.testing.assert_array_equal(people[0] == people[1], pairs.same)
    assert np.all(people // 20 == np.repeat(np.arange(10), 200))


def test_raw_pixels_tell_little(pairs):
    # Best threshold over all pairs on the distance of normalised pixels: more than
    # any cross-validation gives.
    pixels = pairs.decoded().reshape(len(pairs.images), -1).astype(np.float64)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    distances = ((pixels[pairs.left] - pixels[pairs.right]) ** 2).sum(axis=1)
    best = max(((distances < t) == pairs.same).mean() for t in np.arange(0, 2, 0.005))
    assert 0.5 < best <= 0.65


def test_unknown_target_is_none_of_the_datas_own():
    with pytest.raises(FileNotFoundError, match="no verification set 'lfw'.*'mock'"):
        load_val("mock", DataRequest(), "lfw")
