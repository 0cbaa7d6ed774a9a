"""PLSC's rule for the loss scale, step by step, alone and under a strategy."""

import pytest

from plsc_tf.jobs.builders import recipe
from plsc_tf.options.settings import Settings
from plsc_tf.training.loss_scale import MAX_SKIPS_IN_A_ROW, LossScale

GOOD, BAD = True, False


def run(scale, *steps):
    """The scale after each step."""
    values = []
    for finite in steps:
        scale.update(finite)
        values.append(float(scale.value()))
    return values


LARGEST = 2.0**127
RATIOS = {"incr_ratio": 5.0, "decr_ratio": 0.25}
# Options, steps (Good or Bad), the scale after each of them, and the counts at last.
RULES = {
    "grows": ((4.0, 3, 2), "GGGGGGG", [4, 4, 8, 8, 8, 16, 16], (1, 0)),
    "shrinks": ((64.0, 2000, 2), "BBBBB", [64, 32, 32, 16, 16], (0, 1)),
    # Neither three good nor two bad in a row, before the last ones.
    "resets": ((8.0, 3, 2), "GGBGGBGBBGGG", [8] * 8 + [4, 4, 4, 8], (0, 0)),
    "ratios": ((3.0, 1, 1, RATIOS), "GGB", [15, 75, 18.75], (0, 0)),
    "never below one": ((1.5, 2000, 1), "BB", [1, 1], (0, 1)),
    "within float32": ((LARGEST, 2, 2), "GGG", [LARGEST] * 3, (1, 0)),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rule(name):
    (initial, grow, shrink, *ratios), steps, values, counts = RULES[name]
    options = {"incr_every_n_steps": grow, "decr_every_n_nan_or_inf": shrink}
    scale = LossScale(initial, **options, **dict(*ratios))
    assert run(scale, *(step == "G" for step in steps)) == values
    assert tuple(scale.state().values()) == (values[-1], *counts)


def test_a_fixed_scale_stays():
    scale = LossScale(128.0, dynamic=False, incr_every_n_steps=1)
    assert run(scale, GOOD, BAD, BAD, BAD) == [128] * 4
    scale.restore({"scale": 2.0, "good_steps": 3, "bad_steps": 0})
    assert scale.state()["scale"] == 128


def test_a_fixed_scale_explains_some_skips_in_a_row():
    fixed = LossScale(4.0, dynamic=False)
    run(fixed, *[BAD] * MAX_SKIPS_IN_A_ROW)
    assert fixed.explains_skip()
    fixed.update(BAD)
    assert not fixed.explains_skip()
    fixed.update(GOOD)
    fixed.update(BAD)
    assert fixed.explains_skip()


@pytest.mark.parametrize(
    "options",
    [
        {"initial": 0.5},
        {"initial": float("inf")},
        {"incr_every_n_steps": 0},
        {"decr_every_n_nan_or_inf": 1.5},
        {"incr_ratio": 1.0},
        {"decr_ratio": 1.0},
    ],
)
def test_numbers_out_of_range_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}.*Received: {name}="):
        LossScale(**options)


def test_a_scale_may_come_down_to_its_minimum_as_slowly_as_it_is_told_to():
    scale = LossScale(2.0**24, decr_ratio=0.9)
    skips = 0
    while float(scale.value()) > 1:
        scale.update(BAD)
        skips += 1
        assert scale.explains_skip(), f"skip {skips} at {scale.value()}"
    assert skips > MAX_SKIPS_IN_A_ROW
    scale.update(BAD)
    assert not scale.explains_skip()


FIXED = {"use_fp16": True, "use_dynamic_loss_scaling": False}
DYNAMIC = {
    "use_fp16": True,
    "init_loss_scaling": 4.0,
    "incr_every_n_steps": 1,
    "incr_ratio": 3.0,
    "decr_every_n_nan_or_inf": 1,
    "decr_ratio": 0.25,
}


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, None),
        ({"use_bf16": True, "loss_scale": 128.0}, None),
        ({**FIXED, "loss_scale": 0}, None),
        ({**FIXED, "loss_scale": 1}, None),
        # The scale after a good step and a bad one.
        (DYNAMIC, [12, 3]),
        ({"use_fp16": True, "loss_scale": 1024.0}, [1024, 1024]),
        ({**FIXED, "init_loss_scaling": 8.0}, [8, 8]),
    ],
)
def test_the_options_make_the_scale_that_they_say(options, values):
    scale = recipe.make_loss_scale(Settings.from_values(**options))
    assert (scale and run(scale, GOOD, BAD)) == values
