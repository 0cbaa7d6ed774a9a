"""Heads: weights, arguments, batches that do not fit; numbers are in the matrix."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf

CLASSES, EMBEDDING = 11, 6


@pytest.mark.parametrize("loss", [plsc_tf.ARCFACE, plsc_tf.SOFTMAX], ids=str)
def test_zero_embeddings_and_zero_weights_stay_finite(loss):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, EMBEDDING)).astype(np.float32)
    w = rng.normal(size=(CLASSES, EMBEDDING)).astype(np.float32)
    x[0], w[3] = 0.0, 0.0
    strategy = plsc_tf.strategy(2)
    with strategy.scope():
        head = plsc_tf.ShardedHead(CLASSES, loss=loss, scale=16.0)
        head.build(EMBEDDING, strategy)
    head.set_weights_from_numpy(w)

    def replica():
        sample_weights = tf.fill([6], 1 / 12)
        labels = tf.range(6, dtype="int64")
        outcome = head.loss_and_gradients(tf.constant(x), labels, sample_weights)
        gradients = head.second_pass.whole_gradients(outcome.pending)
        return outcome.losses, outcome.embedding_gradients, *gradients

    for value in tf.function(lambda: strategy.run(replica))():
        for own in strategy.experimental_local_results(value):
            assert np.isfinite(own).all()


@pytest.fixture(scope="module", params=[plsc_tf.ShardedHead, plsc_tf.DenseHead])
def head(request):
    """A head on three replicas."""
    built = request.param(CLASSES)
    built.build(EMBEDDING, plsc_tf.strategy(3))
    return built


def test_weights_round_trip_through_numpy(head):
    with pytest.raises(ValueError, match="no weights yet"):
        plsc_tf.ShardedHead(CLASSES).weights_as_numpy()
    whole = np.random.default_rng(1).normal(size=(CLASSES, EMBEDDING)).astype("f4")
    head.set_weights_from_numpy(whole)
    np.testing.assert_array_equal(head.weights_as_numpy(), whole)
    with pytest.raises(ValueError, match=r"\(10, 6\)"):
        head.set_weights_from_numpy(whole[:10])
    np.testing.assert_array_equal(head.weights_as_numpy(), whole)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"num_classes": 0}, "num_classes must be positive"),
        ({"num_classes": 5, "loss": 0.5}, "plsc_tf.ARCFACE"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"sample_rate": 0}, r"sample_rate must be in \(0, 1\].*sample_rate=0"),
        ({"sample_rate": 2}, r"sample_rate must be in \(0, 1\].*sample_rate=2"),
        ({"sample_rate": float("nan")}, "sample_rate=nan"),
        ({"tile_rows": 0}, "tile_rows must be positive, or None.*tile_rows=0"),
        ({"label_smoothing": 1}, r"in \[0, 1\).*label_smoothing=1"),
        ({"label_smoothing": -0.1}, r"in \[0, 1\).*label_smoothing=-0.1"),
        ({"label_smoothing": 0.1, "sample_rate": 0.5}, "Partial FC.*sample_rate=0.5"),
        ({"logits_mb": -1}, "logits_mb must not be negative.*logits_mb=-1"),
        ({"dtype": "float8"}, "dtype must be one of.*bfloat16.*dtype=float8"),
    ],
)
def test_bad_arguments_are_explained(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        plsc_tf.ShardedHead(**({"num_classes": 5} | arguments))


@pytest.mark.parametrize(
    ("options", "rows"),
    [({"tile_rows": 7}, 6), ({"tile_rows": 3, "sample_rate": 0.4}, 2)],
)
def test_a_tile_larger_than_what_a_replica_works_on_is_refused(options, rows):
    # 11 classes on two replicas are 6 and 5.
    head = plsc_tf.ShardedHead(11, **options)
    received = f"at most {rows},.*2 replica.*tile_rows={options['tile_rows']}"
    with pytest.raises(ValueError, match=received):
        head.build(EMBEDDING, plsc_tf.strategy(2))


@pytest.mark.parametrize("shape", [(2, 5), (0, 6), (3, 6), (6,)])
def test_a_batch_that_does_not_fit_the_head_is_refused(head, shape):
    count = 2 if shape[0] else 0

    def replica():
        return head.loss_and_gradients(
            tf.ones(shape), tf.zeros([count], tf.int64), tf.ones([count])
        ).losses

    with pytest.raises(ValueError, match="embedding_size=6.*Received: embeddings"):
        plsc_tf.strategy(3).run(replica)
