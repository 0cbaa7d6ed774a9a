"""The same numbers without oneDNN's kernels, which round as other processors do."""

import pytest

from tests import programs
from tests.marks import slow


@pytest.mark.parametrize(
    "tests",
    [
        "tests/conformance/test_head_matrix.py::test_two_steps_equal_the_oracle"
        "[smoothed_softmax-1-partly-all-momentum]",
        slow("tests/heads"),
        slow("tests/boost"),
    ],
)
def test_without_onednn(tests):
    programs.run("-m", "pytest", "-q", tests, TF_ENABLE_ONEDNN_OPTS="0")
