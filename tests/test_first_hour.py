"""What a new user types in the first hour, and what the command says at once."""

import functools
import os

import pytest

from plsc_tf.__main__ import COMMANDS
from plsc_tf.options import cli
from tests import programs
from tests.programs import ROOT

# Imported before TensorFlow: whoever imports it, fails.
NO_TENSORFLOW = "raise ImportError('TensorFlow is imported')\n"


@pytest.fixture
def say(tmp_path):
    """Runs `python -m ...` where TensorFlow cannot be imported."""
    (tmp_path / "tensorflow.py").write_text(NO_TENSORFLOW)
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    return functools.partial(
        programs.run, "-m", status=None, cwd=tmp_path, PYTHONPATH=path
    )


def test_without_a_command_the_commands_are_listed(say):
    listed = say("plsc_tf")
    assert (listed.status, listed.err) == (0, "")
    for name in COMMANDS:
        assert f"python -m plsc_tf.{name} " in listed.out
    texts = {path.stem: path.read_text() for path in (ROOT / "plsc_tf").glob("*.py")}
    modules = {name for name, text in texts.items() if "cli.main(" in text}
    assert set(COMMANDS) == modules - {"cli"}
    wrong = say("plsc_tf", "train")
    assert (wrong.status, wrong.out) == (2, "")
    assert "python -m plsc_tf.train " in wrong.err


@pytest.mark.parametrize(
    ("command", "data_set", "status"),
    [("train", "folder", 1), ("convert", "image_list", 1), ("check", "folder", 2)],
)
def test_a_typo_in_dataset_dir_is_told_before_tensorflow_is_loaded(
    say, tmp_path, command, data_set, status
):
    (tmp_path / "photos").mkdir()
    words = f"--dataset_name={data_set}", "--dataset_dir=photo"
    found = say(f"plsc_tf.{command}", *words)
    assert found.status == status
    assert "dataset_dir 'photo' does not exist. Did you mean 'photos'?" in found.err
    assert "Traceback" not in found.err and "TensorFlow is imp" not in found.err


def test_options_without_a_data_set_are_sent_to_the_quick_start(say):
    words = "plsc_tf.train", "--num_epochs=3"
    assert "add --flagfile=quickstart.cfg." in say(*words).err
    assert "flagfile" not in say(*words, "--dataset_name=mock").err


def test_serve_without_a_model_is_a_wrong_command_line(say):
    found = say("plsc_tf.serve")
    assert found.status == 2
    assert "model_dir must name the folder of an export" in found.err
    assert "TensorFlow is imported" not in found.err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_flag_files_of_windows_are_read(tmp_path, encoding):
    path = tmp_path / "run.cfg"
    mark = "\ufeff" if encoding.endswith("e") else ""
    path.write_bytes(f"{mark}# Größe\r\nbatch_size=7\r\n--seed=3\r\n".encode(encoding))
    settings = cli.parse([f"--flagfile={path}"])
    assert (settings.training.batch_size, settings.training.seed) == (7, 3)
