"""Heads against a float64 numpy oracle, on every number of replicas."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.heads.margins import SPHEREFACE, Margins
from plsc_tf.parallel import collectives

CLASSES, EMBEDDING, BATCH, SCALE = 11, 6, 12, 16.0
MARGINS = {
    "softmax": plsc_tf.SOFTMAX,
    "arcface": plsc_tf.ARCFACE,
    "arcface_straight_through": Margins(m2=0.5, gradient="straight_through"),
    "cosface": plsc_tf.COSFACE,
    "sphereface": SPHEREFACE,
    "combined": Margins(0.9, 0.4, 0.15),
}
# 11 classes on 2, 3, 4 replicas start at 0 6 | 0 4 8 | 0 3 6 9: the labels touch the
# borders; no label is 9 or 10, so that the last of four replicas holds none.
LABELS = np.array([0, 2, 3, 3, 4, 5, 5, 6, 7, 8, 8, 0])


def margin(cosine, margins):
    angle = np.arccos(cosine)
    return np.cos(margins.m1 * angle + margins.m2) - margins.m3


def oracle(x, w, b, labels, upstream, margins):
    """Losses and gradients of sum(upstream * loss) in float64, unsharded."""
    hit = np.eye(len(w))[labels].T.astype(bool)
    if not margins.normalized:
        z = w @ x.T + b[:, None]
        p = np.exp(z) / np.exp(z).sum(0)
        dz = (p - hit) * upstream
        return -np.log(p.T[hit.T]), dz.T @ w, dz @ x, dz.sum(1)
    xn, wn = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, w))
    cos = wn @ xn.T
    z = SCALE * np.where(hit, margin(cos, margins), cos)
    p = np.exp(z - z.max(0)) / np.exp(z - z.max(0)).sum(0)
    slope = (margin(cos + 1e-6, margins) - margin(cos - 1e-6, margins)) / 2e-6
    slope = 1.0 if margins.gradient == "straight_through" else slope
    dcos = SCALE * (p - hit) * upstream * np.where(hit, slope, 1.0)
    dxn, dwn = dcos.T @ wn, dcos @ xn
    dx, dw = (
        (d - (d * n).sum(1, keepdims=True) * n) / np.linalg.norm(v, axis=1)[:, None]
        for d, n, v in ((dxn, xn, x), (dwn, wn, w))
    )
    return -np.log(p.T[hit.T]), dx, dw, None


def example(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(BATCH, EMBEDDING))
    w = rng.normal(size=(CLASSES, EMBEDDING))
    b = rng.normal(size=CLASSES)
    weights = np.where(np.arange(BATCH) == 4, 0.0, 1.0)  # one example is padding
    return x, w, b, weights / weights.sum()


def run(kind, margins, replicas, x, w, b, upstream):
    """Runs a head on replicas; returns whole losses, gradients and ranks."""
    strategy = plsc_tf.strategy(replicas)
    with strategy.scope():
        head = kind(CLASSES, loss=margins, scale=SCALE)
        head.build(EMBEDDING, strategy)
    head.set_weights_from_numpy(w.astype(np.float32))
    if "bias" in head.arrays():
        head.arrays()["bias"].write(0, b.astype(np.float32))

    @tf.function
    def step():
        def replica():
            x_own, y_own, u_own = (
                collectives.own_slice(tf.constant(value))
                for value in (
                    x.astype(np.float32),
                    LABELS,
                    upstream.astype(np.float32),
                )
            )
            outcome = head.loss_and_gradients(x_own, y_own, u_own, with_ranks=True)
            gradients = head.weight_gradients(outcome.pending)
            if not head.sharded:
                gradients = collectives.all_sum(gradients)
            return (
                outcome.losses,
                outcome.embedding_gradients,
                outcome.ranks,
                *gradients,
            )

        return strategy.run(replica)

    values = [strategy.experimental_local_results(value) for value in step()]
    joined = [np.concatenate(value) for value in values[:3]]
    for value in values[3:]:
        joined.append(np.concatenate(value) if head.sharded else value[0].numpy())
    return joined


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


# Every margin on one even and one odd number of replicas; all else of the heads is in
# tests/conformance/test_head_matrix.py. The replicated head exchanges nothing.
CASES = [
    (plsc_tf.ShardedHead, name, replicas)
    for i, name in enumerate(MARGINS)
    for replicas in (1 + i % 2 * 2, 2 + i % 2 * 2)
]
CASES += [(plsc_tf.DenseHead, "softmax", 3), (plsc_tf.DenseHead, "combined", 1)]


@pytest.mark.parametrize(("kind", "name", "replicas"), CASES)
def test_loss_and_every_gradient_equal_the_oracle(kind, name, replicas):
    x, w, b, upstream = example()
    expected = oracle(x, w, b, LABELS, upstream, MARGINS[name])
    losses, dx, ranks, *dw = run(kind, MARGINS[name], replicas, x, w, b, upstream)
    assert_close(losses, expected[0])
    assert_close(dx, expected[1])
    assert_close(dw[0], expected[2])
    if name == "softmax":
        assert_close(dw[1], expected[3])
        scores = w @ x.T + b[:, None]
    else:
        scores = (w / np.linalg.norm(w, axis=1, keepdims=True)) @ x.T
    own = scores[LABELS, np.arange(BATCH)]
    np.testing.assert_array_equal(ranks, (scores > own).sum(0))


def test_huge_logits_do_not_overflow():
    # float32 exp overflows at 88.7; these logits reach some hundreds.
    x, w, b, upstream = example()
    expected = oracle(30 * x, w, b, LABELS, upstream, plsc_tf.SOFTMAX)
    losses, dx, *_ = run(
        plsc_tf.ShardedHead, plsc_tf.SOFTMAX, 2, 30 * x, w, b, upstream
    )
    assert np.abs(30 * x @ w.T).max() > 150
    assert_close(losses, expected[0])
    assert_close(dx, expected[1])


@pytest.mark.parametrize("name", ["arcface", "softmax"])
def test_zero_embeddings_and_zero_weights_stay_finite(name):
    x, w, b, upstream = example()
    x[0], w[3] = 0.0, 0.0
    for value in run(plsc_tf.ShardedHead, MARGINS[name], 2, x, w, b, upstream):
        assert np.isfinite(value).all()


def test_initial_weights_do_not_depend_on_the_number_of_replicas():
    weights = []
    for replicas in (1, 3):
        strategy = plsc_tf.strategy(replicas)
        head = plsc_tf.ShardedHead(5000, seed=7)
        head.build(8, strategy)
        weights.append(head.weights_as_numpy())
    np.testing.assert_array_equal(weights[0], weights[1])
    # The deviation is that of PLSC, for 8 numbers and 5000 classes.
    assert weights[0].std() == pytest.approx(np.sqrt(2 / 5008), rel=0.02)


@pytest.mark.parametrize("kind", [plsc_tf.ShardedHead, plsc_tf.DenseHead])
def test_weights_round_trip_through_numpy(kind):
    strategy = plsc_tf.strategy(3)
    head = kind(CLASSES)
    with pytest.raises(ValueError, match="no weights yet"):
        head.weights_as_numpy()
    head.build(EMBEDDING, strategy)
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
    received = f"{rows} of 11 classes on 2 replica.*tile_rows={options['tile_rows']}"
    with pytest.raises(ValueError, match=received):
        head.build(EMBEDDING, plsc_tf.strategy(2))


def test_more_replicas_than_classes_are_refused():
    with pytest.raises(ValueError, match="num_rows=3, num_shards=4"):
        plsc_tf.ShardedHead(3).build(EMBEDDING, plsc_tf.strategy(4))


@pytest.mark.parametrize("kind", [plsc_tf.ShardedHead, plsc_tf.DenseHead])
@pytest.mark.parametrize("shape", [(2, 5), (0, 6), (3, 6), (6,)])
def test_a_batch_that_does_not_fit_the_head_is_refused(kind, shape):
    strategy = plsc_tf.strategy(2)
    head = kind(CLASSES)
    head.build(EMBEDDING, strategy)
    count = 2 if shape[0] else 0

    def replica():
        return head.loss_and_gradients(
            tf.ones(shape), tf.zeros([count], tf.int64), tf.ones([count])
        ).losses

    with pytest.raises(ValueError, match="embedding_size=6.*Received: embeddings of"):
        strategy.run(replica)


def test_the_old_name_of_the_loss_works():
    with pytest.warns(DeprecationWarning, match="called loss"):
        head = plsc_tf.ShardedHead(5, margins=plsc_tf.COSFACE)
    with pytest.warns(DeprecationWarning, match="called loss"):
        assert head.margins is head.loss is plsc_tf.COSFACE
