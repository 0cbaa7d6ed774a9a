"""The oracle itself, against figures by hand."""

import math

import numpy as np
import oracle
import pytest

EIGHTH = math.pi / 8
# AdaFace's share 1: mean and deviation are those of the norms 20 and 50; the first has
# z = 0.333 (20 − 35) / (15 √2 + 0.001).
ADAPTED = 0.4 * 4.995 / (15 * math.sqrt(2) + 0.001)


@pytest.mark.parametrize(
    ("loss", "true", "penalty"),
    [
        # θ = π/8 to the true class, 3π/8 to the other; ‖x‖ = 20; state as below.
        ("arcface", math.cos(EIGHTH + 0.5), 0),
        ("cosface", math.cos(EIGHTH) - 0.35, 0),
        ("sphereface", math.cos(1.35 * EIGHTH), 0),
        ("adaface", math.cos(EIGHTH + ADAPTED) - (0.4 - ADAPTED), 0),
        # cos 3π/8 = 0.38 is below cos(π/8 + 0.5) = 0.63: easy.
        ("curricularface", math.cos(EIGHTH + 0.5), 0),
        # m(20) = 0.45 + 0.35 / 10.
        ("magface", math.cos(EIGHTH + 0.485), 35 * (1 / 20 + 20 / 12100)),
    ],
)
def test_losses_by_hand(loss, true, penalty):
    x = np.array([[20 * math.cos(EIGHTH), 20 * math.sin(EIGHTH)], [0, 50]])
    given = {"t_alpha": 1.0} if loss == "adaface" else {}
    batch = x, [0, 1], [1, 1]
    found = oracle.head_step(np.eye(2), None, *batch, loss=loss, scale=3.0, **given)
    expected = math.log(1 + math.exp(3 * (math.cos(3 * EIGHTH) - true))) + penalty
    assert found["losses"][0] == pytest.approx(expected, abs=1e-12)


def test_hard_other_class_and_state_of_curricularface_by_hand():
    # One example at 60° from its class and 30° from the other. t = 0.5 · 0.4 + 0.5 ·
    # cos 60° = 0.45, and cos 30° > cos(60° + m) is hard.
    x = np.array([[math.cos(math.pi / 3), math.sin(math.pi / 3)]])
    given = {"loss": "curricularface", "state": {"t": 0.4}, "momentum": 0.5}
    found = oracle.head_step(np.eye(2), None, x, [0], [1], scale=2.0, **given)
    assert found["state"]["t"] == pytest.approx(0.45)
    other = math.cos(math.pi / 6) * (0.45 + math.cos(math.pi / 6))
    expected = math.log(1 + math.exp(2 * (other - math.cos(math.pi / 3 + 0.5))))
    assert found["losses"][0] == pytest.approx(expected, abs=1e-12)
