"""The wheel holds everything under `plsc_tf`, and nothing beside it."""

import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """File names in a wheel built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".git", "*.egg-info", "build", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    code = "import sys, setuptools.build_meta as m; m.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", code, folder]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_flags_and_datasets_are_inside_the_package(names):
    for folder in ("flags", "datasets"):
        for path in (ROOT / folder).glob("*.py"):
            assert f"plsc_tf/{folder}/{path.name}" in names
    assert "plsc_tf/jobs/train.py" in names
    # What `python -m plsc_tf.train` without options trains.
    assert "plsc_tf/hparams/quickstart.cfg" in names
    assert "plsc_tf/evaluation/pages/card.html" in names


def test_no_other_top_level_package(names):
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"plsc_tf"}


def test_the_two_folders_are_no_packages_of_their_own():
    # With an __init__.py they would shadow other people's `datasets` and `flags`.
    for folder in ("flags", "datasets"):
        assert not (ROOT / folder / "__init__.py").exists()
