"""Tools that a test needs and the library does not."""

import os

import pytest


def skip(name, reason):
    """Skip a test whose tool is missing; PLSC_TF_REQUIRE_<name> makes it fail."""
    if os.environ.get(f"PLSC_TF_REQUIRE_{name}"):
        pytest.fail(f"PLSC_TF_REQUIRE_{name} is set: {reason}")
    pytest.skip(reason)
