"""Every head agrees with the float64 oracle: loss, gradients, weights, slots, state.

Every choice always runs, in few cases and mostly on two replicas, because tracing takes
most of the time; the other cases and the whole matrix run with `pytest -m slow`.
"""

import pytest

from tests import programs
from tests.conformance.head_case import TILINGS, Case
from tests.conformance.head_matrix import check
from tests.marks import slow

REPLICAS = (1, 2, 3, 4)
# Every loss, optimizer, tiling, sampling, number of centers, ...
CASES = [
    Case("arcface", 4, "partly", "sampled", "lars"),
    Case("softmax", 3, "recomputed", "positives", "clipnorm"),
    Case("cosface", 2, "recomputed", "positives", "lars", sub_centers=3),
    Case("combined", 2, "kept", "all", "nesterov", sub_centers=2),
    Case("straight_through", 2, "untiled", "large_sampled", "adamw"),
    Case("adaface", 2, "partly", "sampled", "adam", ranks=True),
    Case("curricularface", 2, "kept", "all", "clipnorm", dense=True),
    Case("magface", 2, "recomputed", "all", "global_clipnorm", ranks=True),
    Case("filtered", 2, "untiled", "large", "momentum"),
    Case("smoothed_softmax", 1, "partly", "all", "momentum"),
    Case("smoothed_curricularface", 2, "kept", "all", "momentum", sub_centers=3),
    Case("smoothed_arcface", 3, "kept", optimizer="lars", dense=True, sub_centers=2),
    slow(Case("arcface", 2, "untiled", "large", "momentum", sub_centers=3)),
    slow(Case("arcface", 2, "untiled", "large_sampled", "momentum", sub_centers=3)),
]
# No clipping: norms are summed in float32 (see `plsc_tf.training.updates`).
FLOAT64 = [
    Case("adaface", 3, "recomputed", "sampled", "adam"),
    slow(Case("smoothed_softmax", 2, "partly", "all", "momentum")),
    slow(Case("arcface", 4, "partly", "positives", "adam", sub_centers=3)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_steps_equal_the_oracle(case):
    check(case)


@pytest.mark.parametrize("case", FLOAT64, ids=str)
def test_in_float64_only_rounding_is_left(case, float64):
    check(case, tolerance=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("replicas", REPLICAS)
def test_the_whole_matrix(replicas, tiling):
    # In a process of its own: TensorFlow keeps some 10 MB of every graph.
    done = programs.run("-m", "tests.conformance.head_matrix", replicas, tiling)
    # 14 losses, of which three with one sampling and the others with three.
    dense = 14 if tiling in ("kept", "recomputed") else 0
    assert done.out == f"{3 + 11 * 3 + dense} cases\n"
