"""Angles over shards of classes, against numpy on the whole."""

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.backbones import precision
from plsc_tf.reporting.angles import AngleHistograms
from plsc_tf.reporting.recorder import Recorder
from plsc_tf.training import batching
from tests.networks import scores


def expected(model, images, labels):
    cosines, rows = scores(model, images), np.arange(len(labels))
    own = cosines[rows, labels]
    cosines[rows, labels] = -1
    return np.degrees(np.arccos([own, cosines.max(axis=1)]))


def measured(model, images, labels, replicas):
    weights = np.ones(len(labels), np.float32)
    size = batching.padded_size(len(labels), replicas)
    batch = batching.pad(*map(tf.constant, (images, labels, weights)), size)
    callback = AngleHistograms(Recorder(), 1)
    callback.set_model(model)
    return callback.measure(batching.split(model.strategy, batch))


@pytest.mark.parametrize(
    ("replicas", "options"),
    [(2, {"dense": True}), (3, {"tile_rows": 1, "sample_rate": 0.7})],
)
def test_angles_are_those_of_the_whole(make_model, pictures, replicas, options):
    model = make_model(replicas, **options)
    images, labels = pictures
    found = measured(model, images, labels, replicas)
    assert found[0].shape == (10,)  # what pads a batch does not count
    np.testing.assert_allclose(found, expected(model, images, labels), atol=0.02)


def test_what_overflows_in_half_precision_has_its_angles(make_model, pictures):
    """As it has its embedding, and its verification."""
    model = make_model(1)
    images, labels = pictures
    first = model.backbone.layers[0]
    first.set_weights([w * 1e6 for w in first.get_weights()])
    precision.apply(model.backbone, precision.Precision("float16"))
    found = measured(model, images, labels, 1)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected(model, images, labels), atol=0.02)
