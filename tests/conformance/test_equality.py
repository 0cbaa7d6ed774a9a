"""The same seed, data and global batch give the same curve on any replica count.

Global batches of 10 do not divide by 3 and 4, 11 classes by none of 2, 3 and 4, and
the last batch of an epoch of 77 images is smaller.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def curves():
    """`{replicas: {case: 20 losses}}`, each count from a process of its own."""
    module = "tests.conformance.loss_curve"
    started = {
        replicas: subprocess.Popen(
            [sys.executable, "-m", module, str(replicas)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for replicas in (1, 2, 3, 4)
    }
    printed = {n: process.communicate() for n, process in started.items()}
    for replicas, process in started.items():
        assert process.returncode == 0, printed[replicas][1]
    return {n: json.loads(out.splitlines()[-1]) for n, (out, _) in printed.items()}


@pytest.mark.parametrize(
    ("case", "tolerance"),
    [("float32", 1e-5), ("float64", 1e-9), ("synchronized", 1e-5)],
)
def test_loss_curves_are_equal(curves, case, tolerance):
    alone = curves[1][case]
    assert len(alone) == 20 and alone[-1] != alone[0]
    for replicas in (2, 3, 4):
        np.testing.assert_allclose(curves[replicas][case], alone, rtol=tolerance)
