"""The wheel holds everything under `plsc_tf`, and nothing beside it."""

import functools
import re
import shutil
import subprocess
import sys
import time
import zipfile

import pytest

import plsc_tf
from plsc_tf.__main__ import COMMANDS, script
from tests.programs import ROOT

# The command builds a second wheel from the sdist.
BUILD = """
import os, pathlib, sys, tarfile, setuptools.build_meta as backend
out = pathlib.Path(sys.argv[1])
sdist = backend.build_sdist(out)
if len(sys.argv) > 2:
    tarfile.open(out / sdist).extractall(out, filter="data")
    os.chdir(out / sdist.removesuffix(".tar.gz"))
backend.build_wheel(out)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two folders with an sdist and a wheel, built from copies of the sources.

    The wheel in the second folder is built from the sdist.
    """
    folders = []
    for further in ([], ["from sdist"]):
        folders.append(tmp_path_factory.mktemp("wheel"))
        source = folders[-1] / "source"
        # Hidden folders, such as .nox, may have gigabytes.
        ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "__pycache__")
        shutil.copytree(ROOT, source, ignore=ignored, copy_function=shutil.copyfile)
        command = [sys.executable, "-c", BUILD, folders[-1], *further]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
    return folders


@pytest.fixture(scope="module")
def names(built):
    return zipfile.ZipFile(*built[0].glob("*.whl")).namelist()


def test_the_same_sources_give_the_same_bytes(built):
    for pattern in ("*.tar.gz", "*.whl"):
        ((one,), (two,)) = (folder.glob(pattern) for folder in built)
        assert one.name == two.name
        assert one.read_bytes() == two.read_bytes()


def test_every_command_has_a_console_script(built):
    wheel = zipfile.ZipFile(*built[0].glob("*.whl"))
    (entries,) = (name for name in wheel.namelist() if "entry_points" in name)
    text = wheel.read(entries).decode()
    for name in COMMANDS:
        assert f"plsc-{name.replace('_', '-')} = plsc_tf.__main__:script\n" in text


def test_a_script_runs_the_command_of_its_name(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bin/plsc-import-checkpoint", "--help"])
    with pytest.raises(SystemExit):
        script()
    assert "usage: plsc-import-checkpoint [--flagfile=FILE" in capsys.readouterr().out


def test_all_folders_are_inside_the_package(names):
    for folder in ("flags", "datasets", "hparams"):
        for path in (ROOT / folder).glob("*.*"):
            assert f"plsc_tf/{folder}/{path.name}" in names
    data = "evaluation/pages/card.html", "options/other_systems.toml"
    for name in ("jobs/train.py", *data):
        assert f"plsc_tf/{name}" in names
    # Type checkers and the package read them.
    assert {"plsc_tf/py.typed", "plsc_tf/__init__.pyi"} <= set(names)


def test_no_other_top_level_package(names):
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"plsc_tf"}


def test_the_two_folders_are_no_packages_of_their_own():
    # With an __init__.py they would shadow other people's `datasets` and `flags`.
    for folder in ("flags", "datasets"):
        assert not (ROOT / folder / "__init__.py").exists()


def test_the_api_page_has_every_public_name():
    page = (ROOT / "website/api.md").read_text()
    assert sorted(re.findall(r"::: plsc_tf\.(\w+)", page)) == plsc_tf.__all__


@pytest.mark.slow
def test_the_wheel_alone_trains_and_serves(built, tmp_path):
    """Prints the time without the download; the promise is 180 s on two free cores."""
    (wheel,) = built[0].glob("*.whl")
    run = functools.partial(subprocess.run, shell=True, check=True, cwd=tmp_path)
    run(f"{sys.executable} -m pip download -q -d house '{wheel}[serving]'")
    began = time.monotonic()
    run(f"{sys.executable} -m venv env")
    run(f"env/bin/pip install -q --no-index -f house '{wheel}[serving]'")
    run("env/bin/plsc-train --flagfile=quickstart.cfg")
    serve = ["env/bin/plsc-serve", "--model_dir=output/quickstart/export", "--port=0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(serve, cwd=tmp_path, stdout=pipe, text=True) as server:
        try:
            port = re.search(r"port=(\d+)", server.stdout.readline())[1]
            image = (ROOT / "docs/images/preprocessing.png").read_bytes()
            assert len(plsc_tf.Client(f"127.0.0.1:{port}").encode([image])) == 1
        finally:
            server.terminate()
    print(f"install to first embedding: {time.monotonic() - began:.0f} s")
