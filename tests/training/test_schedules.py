"""Learning-rate curves, each whole, against its formula in numpy."""

import numpy as np
import pytest

import plsc_tf
from plsc_tf.options.settings import Settings
from plsc_tf.training import schedules

PER_EPOCH, TOTAL = 10, 120
STEPS = np.arange(TOTAL, dtype=np.float64)
LR, BATCH, END = 0.4, 2048, 0.0001
RATE = LR * BATCH / 1024  # PLSC's rule: 0.8


def curve(stop_at_step=0, batch=BATCH, total=TOTAL, **flags):
    options = Settings.from_values(learning_rate=LR, **flags).learning_rate
    rate = schedules.scaled_rate(LR, batch, options.lr_base_batch_size)
    schedule = schedules.build(options, rate, PER_EPOCH, total, stop_at_step)
    return np.array([float(schedule(step)) for step in range(TOTAL)])


def line(first, last, share):
    return first + (last - first) * share


def luong(start, interval, times, factor=0.5):
    decays = np.clip((STEPS - start) // interval, 0, times)
    return np.maximum(RATE * factor**decays, END)


def decays_by(kind, **flags):
    return {"learning_rate_decay_type": kind, **flags}


def luong_of(scheme, **flags):
    return {"decay_scheme": scheme, **flags}


def falling(first, second):
    return RATE * 0.1 ** ((STEPS >= first) * 1.0 + (STEPS >= second))


# Flags of a decay and the formula of its curve.
DECAYS = {
    "piecewise": ({"lr_steps": (30, 60)}, falling(30, 60)),
    "piecewise by epochs": ({"lr_epochs": (3, 6.5)}, falling(30, 65)),
    "fixed": (decays_by("fixed"), RATE + 0 * STEPS),
    "not scaled": (decays_by("fixed", lr_base_batch_size=0), LR + 0 * STEPS),
    "polynomial": (decays_by("polynomial"), line(RATE, END, STEPS / TOTAL)),
    "polynomial of power 2": (
        decays_by("polynomial", polynomial_power=2),
        END + (RATE - END) * (1 - STEPS / TOTAL) ** 2,
    ),
    "cosine": (
        decays_by("cosine"),
        END + (RATE - END) * 0.5 * (1 + np.cos(np.pi * STEPS / TOTAL)),
    ),
    "exponential down to the bound": (
        decays_by("exponential", end_learning_rate=0.01),
        np.maximum(RATE * 0.1 ** (STEPS // PER_EPOCH), 0.01),
    ),
    "linear": (decays_by("linear", end_learning_rate=0), line(RATE, 0, STEPS / TOTAL)),
    "linear that ends early": (
        decays_by("linear", lr_total_epochs=5),
        line(RATE, END, np.minimum(STEPS / 50, 1)),
    ),
    # get_lr(lr_init=0, lr_end=0, lr_max=0.8, warmup_epochs=5, total_epochs=90,
    # steps_per_epoch=10, lr_decay_mode="linear"), of which 12 epochs are trained.
    "as in MindSpore's recipe": (
        decays_by(
            "linear",
            warmup_scheme="linear_from_zero",
            warmup_epochs=5,
            end_learning_rate=0,
            lr_total_epochs=90,
        ),
        np.where(STEPS < 50, RATE * STEPS / 50, RATE - RATE * (STEPS - 50) / 850),
    ),
    "luong5": (luong_of("luong5"), luong(60, 12, 5)),
    "luong234": (luong_of("luong234"), luong(80, 10, 4)),
    "luong of a stopped run": (luong_of("luong234", stop_at_step=60), luong(40, 5, 4)),
    "luong of a planned run": (
        luong_of("luong5", stop_at_step=60, lr_total_epochs=12),
        luong(60, 12, 5),
    ),
    "luong as FastNN's code": (
        luong_of("luong10", luong_decay_factor=0.94),
        luong(60, 6, 10, 0.94),
    ),
    "luong, exponential": (
        luong_of("luong5", **decays_by("exponential")),
        luong(60, 12, 5),
    ),
    "luong, polynomial": (
        luong_of("luong5", **decays_by("polynomial")),
        line(RATE, END, np.clip((STEPS - 60) / 12, 0, 1)),
    ),
}


@pytest.mark.parametrize("name", DECAYS)
def test_the_whole_curve_of_a_decay(name):
    flags, expected = DECAYS[name]
    np.testing.assert_allclose(curve(**flags), expected, rtol=2e-5, atol=1e-7)


WARMUPS = {
    "linear": RATE * (STEPS + 1) / 20,
    "linear_from_zero": RATE * STEPS / 20,
    "linear_from_lr": line(LR, RATE, STEPS / 20),
    "t2t": RATE * 0.01 ** ((20 - STEPS) / 20),
}


@pytest.mark.parametrize("scheme", WARMUPS)
@pytest.mark.parametrize("length", [{"warmup_epochs": 2}, {"warmup_steps": 20}])
def test_the_whole_curve_of_a_warm_up(scheme, length):
    rates = curve(warmup_scheme=scheme, lr_steps=(90,), **length)
    expected = np.where(STEPS < 20, WARMUPS[scheme], RATE * 0.1 ** (STEPS >= 90))
    np.testing.assert_allclose(rates, expected, rtol=2e-5, atol=1e-9)


def test_plscs_warm_up_falls_below_a_batch_of_1024():
    rates = curve(batch=256, warmup_scheme="linear_from_lr", warmup_steps=20)
    np.testing.assert_allclose(rates[:20], line(LR, LR / 4, STEPS[:20] / 20), rtol=2e-5)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"warmup_epochs": 12}, "warmup_epochs=12.0 is 120 steps, but the run has 120"),
        ({"warmup_steps": 130}, "warmup_steps=130 is 130 steps"),
        (
            {"lr_total_epochs": 0.04, "learning_rate_decay_type": "polynomial"},
            "at least one step.* Received: lr_total_epochs=0.04",
        ),
        ({"decay_scheme": "luong10", "stop_at_step": 15}, "decay .* rate 10 times"),
        ({"lr_epochs": (0.01, 0.02)}, r"lr_epochs=.* be increasing.*steps=\[0, 0\]"),
    ],
)
def test_a_run_too_short_for_its_schedule_is_an_error(flags, message):
    with pytest.raises(ValueError, match=message):
        curve(**flags)


def test_warm_up_of_a_plain_rate():
    schedule = plsc_tf.WarmUp(0.5, 4)
    found = [schedule(0), schedule(3), schedule(9)]
    np.testing.assert_allclose(found, [0.125, 0.5, 0.5])
    with pytest.raises(ValueError, match="scheme must be one of"):
        plsc_tf.WarmUp(0.5, 4, scheme="quick")


def test_a_schedule_survives_keras_configs():
    flags = luong_of("luong5", warmup_steps=5, warmup_scheme="t2t")
    flags |= decays_by("polynomial")
    options = Settings.from_values(**flags).learning_rate
    schedule = schedules.build(options, LR, PER_EPOCH, TOTAL)
    again = type(schedule).from_config(schedule.get_config())
    for step in (0, 3, 60, 70, 119):
        assert float(again(step)) == float(schedule(step))
