"""Losses without gradients are those of the pass with gradients."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.parallel import collectives
from tests.marks import slow

CLASSES, BATCH, EMBEDDING = 37, 12, 8


@pytest.mark.parametrize(
    ("kind", "replicas", "options"),
    [
        # 37 classes on two replicas: three tiles of seven at the most.
        (plsc_tf.ShardedHead, 2, {"tile_rows": 7}),
        (plsc_tf.ShardedHead, 1, {"sample_rate": 0.5, "loss": plsc_tf.CURRICULARFACE}),
        (plsc_tf.ShardedHead, 1, {"dtype": "float16", "scale": 128.0}),
        slow(plsc_tf.ShardedHead, 1, {"loss": plsc_tf.SOFTMAX, "label_smoothing": 0.1}),
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
    sample_weights = np.full(BATCH, 1 / BATCH, np.float32)

    def run(gradients):
        def replica(*batch):
            own = map(collectives.own_slice, batch)
            found = head.loss_and_gradients(*own, True, gradients=gradients)
            return found.losses, found.ranks, found.state, found.pending

        function = tf.function(
            lambda *batch: strategy.run(replica, batch), autograph=False
        )
        found = function(*map(tf.constant, (x, labels, sample_weights)))
        *found, pending = (strategy.experimental_local_results(v) for v in found)
        return pending, [
            np.concatenate([np.atleast_1d(v) for v in tf.nest.flatten(one)])
            for one in found
            if tf.nest.flatten(one)
        ]

    pending, losses_only = run(gradients=False)
    assert not any(pending)  # no products are kept
    _, expected = run(gradients=True)
    # The two passes are different graphs, so their sums may be taken in another order
    # and rounded elsewhere. A loss is the logarithm of a sum of 37 terms (37 roundings)
    # less a logit of up to `scale` (each logit is rounded up to three times).
    unit = 2.0**-24
    bound = 2 * unit * (CLASSES + 3 * head.scale)
    np.testing.assert_allclose(losses_only[0], expected[0], rtol=0, atol=bound)
    # Ranks are whole numbers, and no two classes of an example are that close here.
    np.testing.assert_array_equal(losses_only[1], expected[1])
    # CurricularFace's state is 0.01 of a mean over 12 cosines, of which each is at most
    # 1 and takes 8 products and two norms of 8 squares.
    roundings = BATCH + EMBEDDING + 2 * (EMBEDDING // 2 + 2)
    for found, value in zip(losses_only[2:], expected[2:], strict=True):
        atol = 0.01 * 2 * unit * roundings
        np.testing.assert_allclose(found, value, rtol=0, atol=atol)
    assert losses_only[0].shape == (BATCH,) and len(np.unique(losses_only[0])) == BATCH
