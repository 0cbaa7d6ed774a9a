"""Runs heads beside the oracle; as a program, a part of the whole matrix.

The backbone is one matrix, so that gradients of the embeddings, a norm over backbone
and head, and moved embeddings in the second step are all there.
"""

import itertools
import sys
import traceback

import numpy as np

import plsc_tf
from tests.conformance.head_case import (
    LOSSES,
    OPTIMIZERS,
    SAMPLINGS,
    SMOOTHED,
    Case,
    make_example,
)
from tests.conformance.head_expected import Expected, close
from tests.conformance.head_stepper import Stepper


def check(case, tolerance=1e-5, **options):
    """Runs a case and asserts that it agrees with the oracle after every step."""
    example = make_example(case)
    stepper, expected = Stepper(case, example, **options), Expected(case, example)
    for batch in example.batches():
        found = stepper.step(*batch)
        wanted = expected.step(*batch, found.get("sampled"))
        close(found["losses"], wanted["losses"], tolerance)
        close(found["gradients"], wanted["gradients"], tolerance)
        if case.ranks:
            np.testing.assert_array_equal(found["ranks"], wanted["ranks"])
    for name, value in stepper.weights().items():
        close(value, expected.weights[name], tolerance)
    slots, found = expected.whole_slots(), stepper.slots()
    assert sorted(found) == sorted(slots)
    for name, value in slots.items():
        close(found[name], value, tolerance)
    assert set(stepper.state()) == set(expected.state or {})
    for name, value in stepper.state().items():
        close(value, expected.state[name], tolerance)
    return stepper


def rotate(choices, number):
    """One of the choices, the next one for the next number."""
    return list(choices)[number % len(choices)]


def part_of_matrix(replicas, tiling):
    """Every loss and sampling, and heads that are whole on every replica."""
    count = itertools.count(replicas)
    for loss in LOSSES:
        for sampling in ["all"] if loss in SMOOTHED else SAMPLINGS:
            for dense in [False, True] if sampling == "all" else [False]:
                if dense and tiling not in ("kept", "recomputed"):
                    continue
                number = next(count)
                optimizer = rotate(OPTIMIZERS, number)
                ranks = number % 4 == 0
                yield Case(loss, replicas, tiling, sampling, optimizer, dense, ranks)


def main(replicas, tiling):
    """Runs a part of the matrix and prints what does not agree."""
    plsc_tf.strategy(replicas)  # makes the devices
    cases = list(part_of_matrix(replicas, tiling))
    for case in cases:
        try:
            check(case)
        except Exception:  # noqa: BLE001 - the others are run as well
            print(case, traceback.format_exc(), sep="\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
