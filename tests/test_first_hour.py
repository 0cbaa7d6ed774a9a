"""What a new user types in the first hour, and what the command says at once."""

import os
import pathlib
import subprocess
import sys

import pytest

from plsc_tf.__main__ import COMMANDS
from plsc_tf.options import cli

ROOT = pathlib.Path(__file__).parents[1]
# Imported before TensorFlow: whoever imports it, fails.
NO_TENSORFLOW = "raise ImportError('TensorFlow is imported')\n"


@pytest.fixture
def say(tmp_path):
    """Runs `python -m ...` where TensorFlow cannot be imported: status, out, err."""
    (tmp_path / "tensorflow.py").write_text(NO_TENSORFLOW)

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=dict(os.environ, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}"),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_without_a_command_the_commands_are_listed(say):
    status, out, err = say("plsc_tf")
    assert (status, err) == (0, "")
    for name in COMMANDS:
        assert f"python -m plsc_tf.{name} " in out
    modules = {
        path.stem
        for path in (ROOT / "plsc_tf").glob("*.py")
        if "cli.main(" in path.read_text() and path.stem != "cli"
    }
    assert set(COMMANDS) == modules
    status, out, err = say("plsc_tf", "train")
    assert (status, out) == (2, "") and "python -m plsc_tf.train " in err


@pytest.mark.parametrize(
    ("command", "status"), [("train", 1), ("convert", 1), ("check", 2)]
)
def test_a_typo_in_dataset_dir_is_told_before_tensorflow_is_loaded(
    say, tmp_path, command, status
):
    (tmp_path / "photos").mkdir()
    found = say(f"plsc_tf.{command}", "--dataset_name=folder", "--dataset_dir=photo")
    assert found[0] == status
    assert "dataset_dir 'photo' does not exist. Did you mean 'photos'?" in found[2]
    assert "TensorFlow is imported" not in found[2]


def test_options_without_a_data_set_are_sent_to_the_quick_start(say):
    _, _, err = say("plsc_tf.train", "--num_epochs=3")
    assert "add --flagfile=quickstart.cfg." in err
    _, _, err = say("plsc_tf.train", "--num_epochs=3", "--dataset_name=mock")
    assert "flagfile" not in err


def test_serve_without_a_model_is_a_wrong_command_line(say):
    status, _, err = say("plsc_tf.serve")
    assert status == 2
    assert "model_dir must name the folder of an export" in err
    assert "TensorFlow is imported" not in err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_flag_files_of_windows_are_read(tmp_path, encoding):
    path = tmp_path / "run.cfg"
    mark = "\ufeff" if encoding.endswith("e") else ""
    path.write_bytes(f"{mark}# Größe\r\nbatch_size=7\r\n--seed=3\r\n".encode(encoding))
    settings = cli.parse([f"--flagfile={path}"])
    assert (settings.training.batch_size, settings.training.seed) == (7, 3)


@pytest.mark.parametrize("line", ["batch_size: 7", "batch_size:7", "--batch_size : 7"])
def test_a_colon_in_a_flag_file_is_explained(tmp_path, line):
    path = tmp_path / "run.cfg"
    path.write_text(f"{line}\n")
    with pytest.raises(cli.UsageError, match="Did you mean batch_size="):
        cli.parse([f"--flagfile={path}"])


def test_a_flag_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "run.cfg"
    path.write_bytes("model_save_dir=Übung\n".encode("latin-1"))
    with pytest.raises(cli.UsageError, match=r"run.cfg' is not UTF-8 text"):
        cli.parse([f"--flagfile={path}"])
