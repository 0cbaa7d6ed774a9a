"""Accuracy on the trained classes: ranks, against the scores of all classes at once."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.evaluation import closed_set
from plsc_tf.jobs import results
from tests.networks import scores
from tests.serving.tiny import SIZE, classifier


class Images:
    """Batches of random images, the last one smaller."""

    batch_size = 4

    def __init__(self, labels):
        self.labels = np.asarray(labels)
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 256, (len(labels), *SIZE, 3), np.uint8)

    def epoch(self, number):
        for start in range(0, len(self.labels), self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield self.images[rows], tf.constant(self.labels[rows])


@pytest.fixture(
    scope="module",
    params=[(plsc_tf.ARCFACE, 1), (plsc_tf.SOFTMAX, 1), (plsc_tf.ARCFACE, 3)],
    ids=["arcface", "softmax", "sub_centers"],
)
def model(request):
    margins, centers = request.param
    return classifier(margins, sub_centers=centers)


def test_ranks_are_those_of_all_scores(model, monkeypatch):
    monkeypatch.setattr(closed_set, "_IMAGES", 3)
    monkeypatch.setattr(closed_set, "_CLASSES", 4)
    images = Images(np.random.default_rng(2).integers(0, 11, 30))
    found = scores(model, images.images)
    expected = (found >= found[np.arange(30), images.labels][:, None]).sum(axis=1)
    ranks, labels = closed_set.ranks(model, images)
    np.testing.assert_array_equal(ranks, expected)
    np.testing.assert_array_equal(labels, images.labels)
    assert len(set(expected.tolist())) > 3, "the case must not be trivial"
    share = np.mean(found.argmax(axis=1) == images.labels)
    assert results.test_figures(model, images) == {"accuracy": share, "images": 30}


def test_labels_that_the_head_lacks_are_told(model):
    with pytest.raises(ValueError, match=r"head, 0 to 10. Received: .* to 11"):
        closed_set.ranks(model, Images([0, 11]))
    with pytest.raises(ValueError, match="contains no images"):
        closed_set.ranks(model, Images([]))


# Their author could otherwise make a checkpoint accurate.
def test_equal_scores_and_those_that_overflow_are_no_accuracy():
    model, images = classifier(plsc_tf.ARCFACE), Images([0, 1, 2])
    rows = np.zeros_like(model.head.weights_as_numpy())
    model.head.set_weights_from_numpy(rows)
    model.compile(metrics="accuracy")
    found = model.evaluate(images.images, images.labels, return_dict=True)
    assert found["accuracy"] == 0 and (closed_set.ranks(model, images)[0] == 11).all()
    model = classifier(plsc_tf.SOFTMAX)
    model.head.set_weights_from_numpy(rows + 1e25)
    large = np.resize(np.float32([1e25, -1e25]), (3, rows.shape[1]))
    model.embed = lambda *_, **options: large
    assert (closed_set.ranks(model, images)[0] > 1).all()


@pytest.mark.parametrize("centers", [1, 3])
def test_numbers_that_are_not_finite_are_no_accuracy(centers):
    """No score is as high as NaN, which would make every image the first."""
    model, images = classifier(plsc_tf.ARCFACE, sub_centers=centers), Images([0, 1, 2])
    rows = model.head.weights_as_numpy()
    rows[7, ..., 2] = np.nan
    model.head.set_weights_from_numpy(rows)
    with pytest.raises(FloatingPointError, match="weights of class 7 contain NaN"):
        closed_set.ranks(model, images)
    weights = model.backbone.get_weights()
    model.backbone.set_weights([np.full_like(w, np.nan) for w in weights])
    with pytest.raises(ValueError, match="finite, but 3 of 3 rows are not"):
        closed_set.ranks(model, images)
