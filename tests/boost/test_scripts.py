"""The tutorial's two scripts, up to the options that they hand to the command."""

import os
import pathlib
import subprocess
import sys

import pytest

from plsc_tf.options import cli

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def asked(tmp_path):
    """Runs a script with a `python` that writes down what it is called with."""
    tool = tmp_path / "bin" / "python"
    tool.parent.mkdir()
    tool.write_text(
        f'#!{sys.executable}\nimport sys\nprint("\\n".join(sys.argv[1:]))\n'
    )
    tool.chmod(0o755)

    def run(script, *arguments):
        path = f"{tool.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", str(ROOT / "scripts" / script), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done
        module, *options = done.stdout.splitlines()[1:]
        assert module == "plsc_tf.train"
        return cli.parse(options)

    return run


def test_stage_1_with_and_without_pictures(asked, tmp_path):
    assert asked("run_stage_1.sh").dataset.dataset_name == "mock"
    (tmp_path / "my pictures").mkdir()
    found = asked("run_stage_1.sh", "my pictures", "--num_classes=9")
    assert found.dataset.dataset_dir == "my pictures"
    assert (found.dataset.dataset_name, found.dataset.num_classes) == ("folder", 9)
    assert found.boost.snapshots_per_epoch == 8


def test_stage_2_finds_the_snapshots(asked, tmp_path):
    checkpoint = tmp_path / "run" / "6"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").touch()
    for given in (str(checkpoint), "run/"):
        found = asked("run_stage_2.sh", "mock", given)
        assert found.checkpoints.checkpoint_dir == given.rstrip("/")
        assert found.boost.weight_load_dir.endswith("run/snapshots")
        assert found.boost.reduces and found.boost.pca_mat_path == ""
    made = asked("run_stage_2.sh", "mock", "run", "a/pca_mat.npy", "--num_epochs=2")
    assert made.boost.pca_mat_path == "a/pca_mat.npy"
    assert made.training.num_epochs == 2


def test_what_is_missing_is_told(asked):
    assert "usage" in asked("run_stage_2.sh", "mock").stderr
    assert "no folder 'none'" in asked("run_stage_1.sh", "none").stderr
