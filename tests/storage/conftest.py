"""Folders on each kind of store."""

import pytest

from plsc_tf.storage import paths


@pytest.fixture
def gfile_root(tmp_path, monkeypatch):
    """A folder that is reached through TensorFlow's file systems.

    `file://` is one of them, with a disk behind it, once the library's short cut for
    local paths is closed. (TensorFlow's `ram://` appends instead of overwriting, and
    loses the files of a folder that is renamed.)
    """
    monkeypatch.setattr(
        paths, "scheme_of", lambda path: str(path).rpartition("://")[0].lower()
    )
    return f"file://{tmp_path}"


@pytest.fixture(params=["local", "file", "gfile"])
def root(request, tmp_path):
    """A folder that exists, by each way to a store."""
    if request.param == "gfile":
        return request.getfixturevalue("gfile_root")
    return str(tmp_path) if request.param == "local" else f"file://{tmp_path}"
