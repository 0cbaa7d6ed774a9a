"""Every head agrees with the float64 oracle: loss, gradients, weights, slots, state.

All pairs of choices run always, the whole matrix with `pytest -m slow`. 37 and 131
classes divide by no number of replicas and no tile.
"""

import itertools

import keras
import pytest

from tests.conformance import head_case
from tests.conformance.head_case import LOSSES, OPTIMIZERS, SAMPLINGS, TILINGS, Case

REPLICAS = (1, 2, 3, 4)
# Label smoothing is refused under Partial FC.
SMOOTHED = [loss for loss in LOSSES if loss.startswith("smoothed")]
# The others are compositions of these; they run in the whole matrix.
MAIN = [
    "softmax",
    "arcface",
    "straight_through",
    "cosface",
    "combined",
    "adaface",
    "curricularface",
    "magface",
    "filtered",
    "smoothed_softmax",
    "smoothed_arcface",
]


def rotate(choices, number):
    return list(choices)[number % len(choices)]


def every_pair():
    """Every loss on every number of replicas; what else there is takes turns."""
    for i, loss in enumerate(MAIN):
        for r, replicas in enumerate(REPLICAS):
            yield Case(
                loss,
                replicas,
                tiling=rotate(TILINGS, i + r),
                sampling="all" if loss in SMOOTHED else rotate(SAMPLINGS, i + r),
                optimizer=rotate(OPTIMIZERS, i + 2 * r),
                ranks=i % 2 == 0,
            )


def whole_matrix():
    """Sharded heads in every way, and heads that are whole on every replica."""
    count = itertools.count()
    for loss, replicas, tiling in itertools.product(LOSSES, REPLICAS, TILINGS):
        for sampling in ["all"] if loss in SMOOTHED else SAMPLINGS:
            for dense in [False, True] if sampling == "all" else [False]:
                if dense and tiling not in ("kept", "recomputed"):
                    continue
                number = next(count)
                optimizer = rotate(OPTIMIZERS, number)
                ranks = number % 4 == 0
                yield Case(loss, replicas, tiling, sampling, optimizer, dense, ranks)


# The losses that carry something from step to step, or ask the replicas for more.
DENSE = [
    Case("softmax", 4, "recomputed", optimizer="clipnorm", dense=True, ranks=True),
    Case("curricularface", 3, "kept", optimizer="global_clipnorm", dense=True),
    Case("adaface", 2, "kept", optimizer="adamw", dense=True),
    Case("magface", 3, "recomputed", optimizer="adam", dense=True, ranks=True),
]
# No clipping: norms are summed in float32 (see `plsc_tf.training.updates`).
FLOAT64 = [
    Case("adaface", 3, "recomputed", "sampled", "adam"),
    Case("smoothed_softmax", 2, "partly", "all", "momentum"),
    Case("magface", 2, "untiled", "positives", "nesterov"),
]


def test_the_selection_holds_every_pair():
    fields = ("loss", "replicas", "tiling", "sampling", "optimizer")
    sizes = dict(zip(fields, (len(MAIN), 4, 4, 3, 6), strict=True))
    cases = list(every_pair())
    for pair in itertools.combinations(fields, 2):
        if pair == ("loss", "optimizer"):
            continue  # the rule sees gradients only
        found = {tuple(getattr(case, field) for field in pair) for case in cases}
        refused = 2 * 2 if pair == ("loss", "sampling") else 0
        assert len(found) == sizes[pair[0]] * sizes[pair[1]] - refused, pair


@pytest.mark.parametrize("case", [*every_pair(), *DENSE], ids=str)
def test_two_steps_equal_the_oracle(case):
    head_case.check(case)


@pytest.fixture
def float64():
    """Everything that is made in a test is float64."""
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


@pytest.mark.parametrize("case", FLOAT64, ids=str)
def test_in_float64_only_rounding_is_left(case, float64):
    head_case.check(case, tolerance=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("case", whole_matrix(), ids=str)
def test_the_whole_matrix(case):
    head_case.check(case)
