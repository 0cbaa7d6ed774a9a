"""Versions of TensorFlow and Keras that do not fit get one line."""

import os

import pytest

from tests import programs


@pytest.mark.parametrize(
    ("installed", "line", "status"),
    [
        ({"tensorflow": "2.15.1"}, "pip install 'tensorflow>=2.17.1,<2.22'", 1),
        ({"keras": "3.3.3"}, "needs keras 3.12 or newer. Received: keras 3.3.3", 1),
        ({"tensorflow": "2.99.0rc1"}, "was not tried with tensorflow 2.99.0rc1", 0),
        ({"tensorflow": "2.18.0", "keras": "3.12.0"}, "", 0),
    ],
)
def test_a_version_that_does_not_fit_is_named_once(tmp_path, installed, line, status):
    for name, version in installed.items():
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(text)
    code = "import plsc_tf; plsc_tf.Client; plsc_tf.FaceService"
    paths = f"{tmp_path}{os.pathsep}{programs.ROOT}"
    done = programs.run("-c", code, status=status, PYTHONPATH=paths)
    assert done.err.count("pip install") == bool(line) and line in done.err
