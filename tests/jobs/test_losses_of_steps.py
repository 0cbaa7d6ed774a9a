"""Steps that no checkpoint has are named: after two Ctrl-C, and without disk space."""

import json
import logging
import resource

import pytest

from plsc_tf import train
from plsc_tf.checkpoints import catalog
from plsc_tf.jobs import train as run
from plsc_tf.training.ending import Termination
from tests.jobs.tiny_run import settings

OPTIONS = {
    "num_epochs": 1,
    "save_checkpoints_steps": 3,
    "save_in_background": False,
}
STANDARD = (
    "StopAtStepHook",
    "ProfilerHook",
    "LoggingTensorHook",
    "CheckpointSaverHook",
)


def broken_by(name):
    return {**OPTIONS, "hooks": (*STANDARD, f"tests.training.breaking:{name}")}


def test_two_ctrl_c_say_what_is_lost(tmp_path, caplog):
    termination = Termination()
    termination.listen()
    try:
        with (
            caplog.at_level(logging.WARNING, logger="absl"),
            pytest.raises(KeyboardInterrupt),
        ):
            run.train(settings(tmp_path, **broken_by("CtrlCTwice")), termination)
    finally:
        termination.stop_listening()
    last = f"{tmp_path}/step_00000003"
    assert f"1 of 4 steps are lost; the last checkpoint is {last}." in caplog.text
    assert [path for _, path in catalog.find_all(str(tmp_path))] == [last]
    assert not list(tmp_path.glob(".writer-*"))


def test_a_run_whose_last_weights_are_not_saved_ends_with_74(tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = {**broken_by("NoLargeFiles"), "on_save_error": "continue"}
    try:
        with pytest.raises(SystemExit) as caught:
            train.main(settings(tmp_path, **options))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.code == 74
    outcome = json.loads((tmp_path / "results.json").read_text())
    assert (outcome["steps"], outcome["unsaved_steps"]) == (5, 2)
    assert outcome["checkpoint_dir"] == f"{tmp_path}/step_00000003"
    [line] = [one for one in capsys.readouterr().out.splitlines() if "NOT SAVED" in one]
    assert "the last 2 steps" in line
