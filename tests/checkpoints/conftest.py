"""A small checkpoint."""

import pytest

from tests.checkpoints import small


@pytest.fixture
def path(tmp_path):
    """The checkpoint "0" of step 5, saved on three replicas."""
    small.save(tmp_path / "0")
    return tmp_path / "0"
