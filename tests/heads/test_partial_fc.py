"""Which classes Partial FC samples, and that the others stay as they are."""

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.heads.tiles import sample_rows
from tests.conformance.head_case import Case, make_example
from tests.conformance.head_matrix import Stepper

CLASSES, RATE, STEPS = 40, 0.3, 3000
# Rows of other replicas are below 0 or beyond 39; row 0 is not among the true classes.
TRUE = [7, 19, 39, 7, -1, 40, 93, -25]


def draw(steps, rows=TRUE, count=CLASSES, rate=RATE, seed=0, replica=0):
    """The samples of steps 0, 1, …"""

    @tf.function
    def sample():
        labels = tf.constant(rows, tf.int64)
        return tf.map_fn(
            lambda step: sample_rows(labels, count, rate, (seed, replica, step)),
            tf.range(steps, dtype=tf.int64),
        )

    return list(sample().numpy())


@pytest.fixture(scope="module")
def samples():
    return np.stack(draw(STEPS))


def test_all_true_classes_and_exactly_the_share_take_part(samples):
    assert samples.shape == (STEPS, int(RATE * CLASSES))
    assert samples.dtype == np.int64
    assert (np.diff(samples, axis=1) > 0).all()  # ascending, none twice
    assert samples.min() >= 0 and samples.max() < CLASSES
    for row in (7, 19, 39):
        assert (samples == row).sum() == STEPS


def test_the_other_classes_are_equally_likely(samples):
    # 9 of 37 without replacement. Each is drawn with p = 9 / 37 in every step; the
    # counts of one step sum to 9, which leaves 36 degrees of freedom.
    others = np.delete(np.bincount(samples.ravel(), minlength=CLASSES), [7, 19, 39])
    p = 9 / 37
    assert others.sum() == 9 * STEPS
    square = ((others - STEPS * p) ** 2).sum() / (STEPS * p * (1 - p)) * 36 / 37
    assert 15.3 < square < 68.0  # the 0.1 % and 99.9 % points


def test_seed_replica_and_step_tell_the_sample_and_nothing_else(samples):
    np.testing.assert_array_equal(draw(20), samples[:20])
    for other in (draw(20, seed=1), draw(20, replica=1), samples[1:21]):
        same = [np.array_equal(a, b) for a, b in zip(other, samples, strict=False)]
        assert not any(same)
    # Another order of the batch, another batch on other replicas.
    again = draw(20, rows=[39, -3, -3, 1000, 19, 19, 7, 62])
    np.testing.assert_array_equal(again, samples[:20])


@pytest.mark.parametrize(
    ("rows", "rate", "size", "expected"),
    [
        # 17 true classes here, of a share of 12: they take part alone.
        (range(-6, 34, 2), RATE, 17, range(0, 34, 2)),
        # A batch larger than the sample, with three classes: nine more are drawn.
        (TRUE[:3] * 6 + [-1, 40], RATE, 12, [7, 19, 39]),
        # A replica without true classes, and a share below one.
        ([-1, -1, 99], 0.001, 1, []),
        ([5, 5, 99], 0.001, 1, [5]),
        # A batch of all classes.
        (range(-5, 55), RATE, CLASSES, range(CLASSES)),
    ],
)
def test_true_classes_take_part_in_any_number(rows, rate, size, expected):
    for sample in draw(5, list(rows), rate=rate):
        assert sample.shape == (size,) and set(expected) <= set(sample)


def test_what_is_not_sampled_stays_bit_for_bit():
    case = Case("softmax", 2, "kept", "sampled", "adam")
    example = make_example(case)
    stepper, batches = Stepper(case, example), list(example.batches())
    stepper.step(*batches[0])
    before = {**stepper.weights(), **stepper.slots()}
    sampled = stepper.step(*batches[1])["sampled"]
    after = {**stepper.weights(), **stepper.slots()}
    others = np.setdiff1d(np.arange(113), sampled)
    assert set(batches[1][1]) <= set(sampled)
    assert len(sampled) == 25 + 25  # 0.45 of 57 and 56 classes
    names = [name for name in before if not name.startswith("kernel")]
    assert len(names) == 2 * 3  # weight and bias, each with two slots
    for name in names:
        np.testing.assert_array_equal(after[name][others], before[name][others])
        assert (after[name][sampled] != before[name][sampled]).any(axis=-1).all()
