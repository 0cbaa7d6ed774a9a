"""A training that four replicas saved goes on on any other number of them."""

import itertools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.checkpoints import elsewhere

ROOT = pathlib.Path(__file__).parents[2]
# Which losses are compared always; all of them with `pytest -m slow`.
COMPARED = [("momentum", 1), ("bias", 8)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(folder, `{case: what four replicas saved, and their next losses}`)."""
    folder = tmp_path_factory.mktemp("elsewhere")
    return folder, {case: elsewhere.save(case, 4, folder) for case in elsewhere.CASES}


def start_on_eight(folder, *cases):
    """A process of its own, that also trains these cases."""
    module = ["-m", "tests.checkpoints.elsewhere"]
    return subprocess.Popen(
        [sys.executable, *module, "8", str(folder), *cases],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome_of(process):
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return {(case, 8): found for case, found in json.loads(out.split("\n")[-2]).items()}


@pytest.fixture(scope="module")
def found(saved):
    """`{(case, replicas): what was restored, and the next losses}`."""
    folder, _ = saved
    eight = start_on_eight(folder, *(case for case, n in COMPARED if n == 8))
    restored = {
        (case, replicas): elsewhere.go_on(
            case, replicas, folder, losses=(case, replicas) in COMPARED
        )
        for case in elsewhere.CASES
        for replicas in (1, 3)
    }
    return restored | outcome_of(eight)


@pytest.mark.parametrize("replicas", [1, 3, 8])
@pytest.mark.parametrize("case", elsewhere.CASES)
def test_every_row_bias_and_slot_is_restored_bit_for_bit(saved, found, case, replicas):
    expected = saved[1][case]["values"]
    assert found[case, replicas]["values"] == expected
    assert ("bias" in expected) == (case == "bias")
    slots = {"weight/velocity"} if case == "momentum" else {"weight/momentum"}
    assert slots <= expected.keys()


@pytest.mark.parametrize(("case", "replicas"), COMPARED)
def test_the_next_losses_are_equal(saved, found, case, replicas):
    expected = saved[1][case]["losses"]
    assert expected[2] != expected[0]
    np.testing.assert_allclose(found[case, replicas]["losses"], expected, rtol=1e-5)


@pytest.mark.slow
def test_all_next_losses_are_equal(saved):
    folder, expected = saved
    cases = ("momentum", "bias")
    found = outcome_of(start_on_eight(folder, *cases))
    for replicas in (1, 2, 3):
        for case in cases:
            found[case, replicas] = elsewhere.go_on(case, replicas, folder)
    for case, replicas in itertools.product(cases, (1, 2, 3, 8)):
        losses = found[case, replicas]["losses"]
        np.testing.assert_allclose(losses, expected[case]["losses"], rtol=1e-5)
