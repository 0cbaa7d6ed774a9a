"""Losses without gradients are those of the pass with gradients."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.parallel import collectives

CLASSES, BATCH, EMBEDDING = 37, 12, 8


@pytest.mark.parametrize(
    ("kind", "replicas", "options"),
    [
        # 37 classes on two replicas: three tiles of seven at the most.
        (plsc_tf.ShardedHead, 2, {"tile_rows": 7}),
        (plsc_tf.ShardedHead, 2, {"sample_rate": 0.5, "margins": plsc_tf.COSFACE}),
        (plsc_tf.ShardedHead, 1, {"margins": plsc_tf.SOFTMAX, "label_smoothing": 0.1}),
        (plsc_tf.ShardedHead, 1, {"margins": plsc_tf.CURRICULARFACE}),
        (plsc_tf.ShardedHead, 1, {"dtype": "float16", "scale": 128.0}),
        (plsc_tf.DenseHead, 2, {"jit_compile": True, "label_smoothing": 0.1}),
    ],
)
def test_losses_ranks_and_state_are_the_same(kind, replicas, options):
    strategy = plsc_tf.strategy(replicas)
    with strategy.scope():
        head = kind(CLASSES, **{"scale": 16.0, **options})
        head.build(EMBEDDING, strategy)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, EMBEDDING)).astype(np.float32)
    labels = rng.integers(0, CLASSES, BATCH)
    upstream = np.full(BATCH, 1 / BATCH, np.float32)

    def run(passes):
        def replica(*batch):
            found = passes(*map(collectives.own_slice, batch), True)
            return found.losses, found.ranks, found.state, found.pending

        function = tf.function(
            lambda *batch: strategy.run(replica, batch), autograph=False
        )
        found = function(*map(tf.constant, (x, labels, upstream)))
        *found, pending = (strategy.experimental_local_results(v) for v in found)
        return pending, [
            np.concatenate([np.atleast_1d(v) for v in tf.nest.flatten(one)])
            for one in found
            if tf.nest.flatten(one)
        ]

    pending, alone = run(head.losses)
    assert not any(pending)  # no products are kept
    _, expected = run(head.loss_and_gradients)
    # To rounding: the graphs are not the same.
    np.testing.assert_allclose(alone[0], expected[0], rtol=1e-6)
    for found, value in zip(alone[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(found, value)
    assert alone[0].shape == (BATCH,) and len(np.unique(alone[0])) == BATCH
