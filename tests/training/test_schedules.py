"""Learning-rate curves."""

import numpy as np
import pytest

import plsc_tf
from plsc_tf.settings import Settings
from plsc_tf.training import schedules


def curve(steps, **flags):
    options = Settings.from_values(**flags).learning_rate
    schedule = schedules.build(options, rate=0.8, steps_per_epoch=10, total_steps=100)
    return [float(schedule(step)) for step in steps]


def test_plsc_scales_by_the_global_batch():
    # Half of the batch of 1024 that the rate is meant for: half the rate.
    assert schedules.scaled_rate(0.1, 512, 1024) == pytest.approx(0.05)
    assert schedules.scaled_rate(0.1, 512, 0) == 0.1


def test_piecewise_changes_exactly_at_its_steps():
    rates = curve([0, 29, 30, 59, 60, 99], lr_steps=(30, 60))
    np.testing.assert_allclose(rates, [0.8, 0.8, 0.08, 0.08, 0.008, 0.008], rtol=1e-6)


def test_warm_up_grows_linearly_to_the_rate():
    rates = curve([0, 1, 9, 18, 19, 20, 99], warmup_epochs=2, lr_steps=(90,))
    expected = [0.04, 0.08, 0.4, 0.76, 0.8, 0.8, 0.08]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "middle", "last"),
    [
        ("fixed", 0.8, 0.8),
        ("polynomial", 0.4 + 0.00005, 0.0001),  # the mean of 0.8 and 0.0001
        ("cosine", 0.4 + 0.00005, 0.0001),
        ("exponential", 0.8 * 0.5**5, 0.8 * 0.5**10),  # once per epoch of 10 steps
    ],
)
def test_decays_end_where_they_should(kind, middle, last):
    rates = curve(
        [0, 50, 100],
        learning_rate_decay_type=kind,
        learning_rate_decay_factor=0.5,
    )
    np.testing.assert_allclose(rates, [0.8, middle, last], rtol=1e-5)


def test_a_warm_up_longer_than_the_run_is_an_error():
    with pytest.raises(ValueError, match="warmup_epochs=10.0 is 100 steps"):
        curve([0], warmup_epochs=10)


def test_warm_up_of_a_plain_rate():
    schedule = plsc_tf.WarmUp(0.5, 4)
    np.testing.assert_allclose(
        [schedule(0), schedule(3), schedule(9)], [0.125, 0.5, 0.5]
    )
