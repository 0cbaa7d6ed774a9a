"""Mixup and cutmix: what is mixed, and the loss of both labels."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.training.mixing import Mixing
from tests.conformance.head_matrix import sampled_classes
from tests.heads import oracle
from tests.marks import slow
from tests.networks import compiled, flat

CLASSES, BATCH = 9, 8
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (BATCH, 6, 8, 3)).astype(np.uint8)
LABELS = np.array([0, 1, 2, 3, 3, 8, 5, 5])
WEIGHTS = np.array([1, 0.5, 1, 2, 1, 1, 1, 0], np.float32)
# The last one is padding, so that its neighbor stays as it is.
PARTNERS = np.array([1, 0, 3, 2, 5, 4, 6, 6])


def mixed(mixing, step):
    """(images, labels, share) as numpy."""
    batch = map(tf.constant, (IMAGES, LABELS, WEIGHTS, step))
    return [value.numpy() for value in mixing(*batch)]


def test_mixup_is_the_weighted_mean_of_neighbors():
    images, labels, share = mixed(Mixing(mixup=0.4), 3)
    assert 0 < share < 1
    x = IMAGES.astype(np.float64)
    np.testing.assert_allclose(images, share * x + (1 - share) * x[PARTNERS], atol=1e-3)
    np.testing.assert_array_equal(labels, np.stack([LABELS, LABELS[PARTNERS]], 1))


def test_cutmix_pastes_a_rectangle_of_the_share_that_it_tells():
    mixing, shares = Mixing(cutmix=1.0), []
    for step in range(30):
        images, _, share = mixed(mixing, step)
        changed = (images != IMAGES).any(axis=3)
        assert not changed[6].any()
        rows = np.flatnonzero(changed[:6].any(axis=(0, 2)))
        columns = np.flatnonzero(changed[:6].any(axis=(0, 1)))
        if area := len(rows) * len(columns):
            box = np.s_[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            expected = IMAGES.copy()
            expected[box] = IMAGES[PARTNERS][box]
            np.testing.assert_array_equal(images, expected)
            assert rows[-1] - rows[0] + 1 == len(rows)
        assert share == pytest.approx(1 - area / 48, abs=1e-6)
        shares.append(share)
    assert min(shares) < 0.4 and max(shares) > 0.8


def test_shares_are_those_of_a_beta_distribution_and_follow_the_step():
    mixing = Mixing(mixup=0.4, seed=5)
    draw = tf.function(lambda step: mixing(IMAGES, LABELS, WEIGHTS, step)[2])
    shares = np.array([draw(tf.constant(step)).numpy() for step in range(300)])
    # Variance of Beta(a, a): 1 / (4 (2 a + 1)) = 0.139. The deviation of the mean is
    # 0.022, that of the variance 0.0043 (its fourth moment is at most variance / 4).
    assert abs(shares.mean() - 0.5) < 0.1
    assert abs(shares.var() - 0.139) < 0.02
    np.testing.assert_array_equal(mixed(mixing, 7)[0], mixed(mixing, 7)[0])
    assert mixed(Mixing(mixup=0.4, seed=6), 7)[2] != shares[7]


def test_with_both_each_step_takes_one():
    both, kinds = Mixing(0.4, 1.0, seed=1), []
    for step in range(40):
        images = mixed(both, step)[0]
        alone = [mixed(Mixing(0.4, 0.0, 1), step), mixed(Mixing(0.0, 1.0, 1), step)]
        (kind,) = [i for i, one in enumerate(alone) if np.array_equal(images, one[0])]
        kinds.append(kind)
    # A binomial of 40 and 1/2 has a deviation of 3.2.
    assert abs(sum(kinds) - 20) < 16


def make_model(replicas, parts=1, dense=False, **options):
    kind = plsc_tf.DenseHead if dense else plsc_tf.ShardedHead
    model = compiled(
        lambda: flat((6, 8, 3), keras.layers.Dense(5, use_bias=False)),
        kind(CLASSES, loss=plsc_tf.SOFTMAX, **options),
        replicas,
        lambda: plsc_tf.Momentum(0.1, momentum=0.0, l2=0.0),
        mixing=Mixing(mixup=0.4),
        gradient_accumulation_steps=parts,
    )
    return model, model.backbone.layers[-1].kernel


@pytest.mark.parametrize(
    ("replicas", "options"),
    [
        slow(1, {}),
        slow(2, {}),
        (2, {"parts": 2}),
        (2, {"dense": True, "label_smoothing": 0.1}),
        # All classes of both labels are sampled, here half of the others.
        (1, {"sample_rate": 0.9}),
    ],
)
def test_loss_and_gradients_are_those_of_both_labels(replicas, options):
    model, kernel = make_model(replicas, **options)
    before = kernel.numpy().astype(np.float64)
    weight = model.head.weights_as_numpy().astype(np.float64)
    result = model.train_on_batch(IMAGES, LABELS, WEIGHTS)
    # The first update is step 0.
    images, labels, share = mixed(Mixing(mixup=0.4), 0)
    x = (images.astype(np.float64) - 127.5) / 128
    x = x.reshape(BATCH, -1)
    loss, dx, dw = 0.0, 0.0, 0.0
    for column, part in ((0, float(share)), (1, 1 - float(share))):
        found = oracle.head_step(
            weight,
            np.zeros(CLASSES),
            x @ before,
            labels[:, column],
            WEIGHTS,
            loss="softmax",
            label_smoothing=options.get("label_smoothing", 0.0),
            sampled=sampled_classes(model.head, model.strategy, labels.ravel(), 0),
        )
        loss += part * (WEIGHTS * found["losses"]).sum() / BATCH
        # The oracle divides by the sum of the weights, Keras by the batch.
        dx = dx + part * found["embedding_gradients"] * WEIGHTS.sum() / BATCH
        dw = dw + part * found["weight_gradients"] * WEIGHTS.sum() / BATCH
    assert result["loss"] == pytest.approx(loss, rel=1e-5)
    for found, wanted in (
        (kernel.numpy() - before, -0.1 * x.T @ dx),
        (model.head.weights_as_numpy() - weight, -0.1 * dw),
    ):
        atol = 1e-5 * np.abs(wanted).max() + 2e-7
        np.testing.assert_allclose(found, wanted, atol=atol)


def test_what_cannot_be_mixed_is_refused():
    with pytest.raises(ValueError, match="even number of images. Received: images=7"):
        Mixing(0.2)(tf.zeros([7, 2, 2, 3]), tf.zeros([7]), tf.ones([7]), 0)
    model, _ = make_model(1)
    with model.strategy.scope():
        head = plsc_tf.ShardedHead(CLASSES)
        margin = plsc_tf.Classifier(keras.models.clone_model(model.backbone), head)
        with pytest.raises(ValueError, match="plain softmax.*loss_type=softmax"):
            margin.compile(plsc_tf.Momentum(), mixing=Mixing(0.2))
