"""The same numbers without oneDNN's kernels, which round as other processors do."""

import os
import subprocess
import sys

import pytest

from tests.conformance.guide_commands import ROOT


@pytest.mark.parametrize(
    "tests",
    [
        "tests/conformance/test_head_matrix.py::test_two_steps_equal_the_oracle"
        "[smoothed_softmax-1-partly-all-momentum]",
        pytest.param("tests/heads", marks=pytest.mark.slow),
        pytest.param("tests/boost", marks=pytest.mark.slow),
    ],
)
def test_without_onednn(tests):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", tests],
        cwd=ROOT,
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
