"""A training that four replicas saved goes on on any other number of them."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.checkpoints import elsewhere

ROOT = pathlib.Path(__file__).parents[2]
# Which losses are compared always; all of them with `pytest -m slow`.
COMPARED = [("momentum", 1), ("momentum", 8), ("bias", 3), ("bias", 8)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(folder, `{case: what four replicas saved, and their next losses}`)."""
    folder = tmp_path_factory.mktemp("elsewhere")
    return folder, {case: elsewhere.save(case, 4, folder) for case in elsewhere.CASES}


@pytest.fixture(scope="module")
def found(saved):
    """`{(case, replicas): what was restored}`; eight need a process of their own."""
    folder, _ = saved
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.checkpoints.elsewhere", "8", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    restored = {
        (case, replicas): elsewhere.go_on(
            case, replicas, folder, losses=(case, replicas) in COMPARED
        )
        for case in elsewhere.CASES
        for replicas in (1, 2, 3)
    }
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    eight = json.loads(out.splitlines()[-1])
    return restored | {(case, 8): outcome for case, outcome in eight.items()}


@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
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
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("case", ["momentum", "bias"])
def test_all_next_losses_are_equal(saved, case, replicas):
    outcome = elsewhere.go_on(case, replicas, saved[0])
    np.testing.assert_allclose(outcome["losses"], saved[1][case]["losses"], rtol=1e-5)
