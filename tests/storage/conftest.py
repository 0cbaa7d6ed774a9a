"""Folders on each kind of store."""

import pytest


@pytest.fixture(params=["local", "file", "gfile"])
def root(request, tmp_path):
    """A folder that exists, by each way to a store."""
    if request.param == "gfile":
        return request.getfixturevalue("gfile_root")
    return str(tmp_path) if request.param == "local" else f"file://{tmp_path}"
