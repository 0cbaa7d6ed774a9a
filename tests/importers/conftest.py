"""PyTorch, for the tests that write arcface_torch's files with it."""

import pytest

from tests import required


@pytest.fixture
def torch():
    """PyTorch; PLSC_TF_REQUIRE_TORCH=1 makes its absence a failure."""
    try:
        import torch
    except ImportError as missing:
        required.skip("TORCH", f"PyTorch is missing: {missing}")
    return torch
