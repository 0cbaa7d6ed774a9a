"""Marks of single parameters."""

import pytest


def slow(*values):
    """Returns parameters of a test that run with `-m slow` only."""
    return pytest.param(*values, marks=pytest.mark.slow)
