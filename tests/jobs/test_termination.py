"""Tests that a run ended by a signal is saved and can be resumed.

Steps are lost, and the log says so, only after two Ctrl-C or if the disk is full.
"""

import json
import os
import pathlib
import re
import resource
import signal

import keras
import pytest

from plsc_tf import train as command
from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs import train
from plsc_tf.jobs.builders.hooks import LEFT_OUT
from plsc_tf.options.settings import Settings
from plsc_tf.training.ending import Termination
from tests import commands, programs
from tests.jobs.tiny_run import TINY, as_flags, on_one_replica
from tests.waiting import wait_for

LONG = {**TINY, "num_replicas": 1, "num_sample_per_epoch": 400, "save_losses": True}
LONG |= {"global_batch_size": 8, "num_epochs": 40}
SHORT = {"num_epochs": 1, "save_checkpoints_steps": 3, "save_in_background": False}


def losses(folder):
    """Returns the lines of losses.txt, one per step."""
    path = pathlib.Path(folder) / "losses.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """`{signal: (folder, `Result`)}` of two runs of the command.

    A SIGTERM from outside ends a process. A SIGINT arrives within the third step.
    """
    folder = tmp_path_factory.mktemp("ended")
    terminated, interrupted = folder / "SIGTERM", folder / "SIGINT"
    words = as_flags({**LONG, "model_save_dir": terminated})
    with programs.start("-m", "plsc_tf.train", *words) as process:
        wait_for(
            lambda: len(losses(terminated)) >= 3 or process.poll() is not None, 120
        )
        process.send_signal(signal.SIGTERM)
        found = {signal.SIGTERM: (terminated, programs.end(process, timeout=120))}
    hook = f"--hooks={','.join(LEFT_OUT)},{__name__}:InTheThirdStep"
    words = as_flags({**LONG, "model_save_dir": interrupted})
    return found | {signal.SIGINT: (interrupted, commands.run("train", *words, hook))}


@pytest.mark.parametrize(
    ("which", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_it_saves_the_last_step_and_says_how_to_go_on(ended, which, status):
    folder, done = ended[which]
    assert done.status == status, done.err
    (step, path), *_ = reversed(catalog.find_all(str(folder)))
    # The checkpoint contains every finished step and nothing of the next one.
    assert step == len(losses(folder)) >= 3
    state = manifest.read(path)["state"]
    assert state["global_step"] == 50 * state["epoch"] + state["step"] == step
    assert "resumes from it" in done.err
    assert f"--flagfile={folder}/flags.cfg" in done.err
    # Python prints, and ignores, an exception that a signal raises in a finalizer.
    said = re.sub(r"Exception ignored in.*\nTraceback", "", done.err)
    assert "Traceback" not in said, said


@pytest.fixture
def termination():
    termination = Termination()
    termination.listen()
    yield termination
    termination.stop_listening()


class _InAStep(keras.callbacks.Callback):
    """Acts as a step begins."""

    def on_train_batch_begin(self, batch, logs=None):
        if self.model.trainer.position.global_step == self.done:
            self.act()


class InTheThirdStep(_InAStep):
    """A user who ends the run."""

    done = 2

    def act(self):
        os.kill(os.getpid(), signal.SIGINT)


class CtrlCTwice(_InAStep):
    """A user who does not wait."""

    done = 4

    def act(self):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


class NoLargeFiles(_InAStep):
    """A quota: from now on no file may be larger than 16 kB."""

    done = 4

    def act(self):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, hard))


class AtTheEnd(keras.callbacks.Callback):
    """Sends SIGTERM after the first epoch ends and before it is saved."""

    def on_epoch_end(self, epoch, logs=None):
        """Sends SIGTERM."""
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_epoch_that_has_ended_is_saved_under_its_number(tmp_path, termination):
    values = {**LONG, "num_sample_per_epoch": 24, "num_epochs": 2}
    values |= {"model_save_dir": str(tmp_path), "run_report": False}
    with pytest.raises(SystemExit):
        hook = f"{__name__}:AtTheEnd"
        train.train(Settings.from_values(**values, hooks=hook), termination)
    assert [path for _, path in catalog.find_all(str(tmp_path))] == [f"{tmp_path}/0"]


# Tests of the callback itself.


def test_outside_an_epoch_a_signal_works_at_once(termination):
    with pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143


def test_signals_are_given_back():
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    termination = Termination()
    termination.listen()
    termination.listen_again()
    assert signal.getsignal(signal.SIGINT) is not before[1]
    termination.stop_listening()
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before


def broken_by(name):
    return {**SHORT, "hooks": (*LEFT_OUT, f"{__name__}:{name}")}


def test_two_ctrl_c_say_what_is_lost(tmp_path, caplog, termination):
    with pytest.raises(KeyboardInterrupt):
        train.train(on_one_replica(tmp_path, **broken_by("CtrlCTwice")), termination)
    last = f"{tmp_path}/step_00000003"
    assert f"1 of 4 steps are lost. Last checkpoint: {last}." in caplog.text
    assert [path for _, path in catalog.find_all(str(tmp_path))] == [last]
    assert not list(tmp_path.glob(".writer-*"))


def test_a_run_whose_last_weights_are_not_saved_ends_with_74(tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = {**broken_by("NoLargeFiles"), "on_save_error": "continue"}
    try:
        with pytest.raises(SystemExit) as caught:
            command.main(on_one_replica(tmp_path, **options))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.code == 74
    outcome = json.loads((tmp_path / "results.json").read_text())
    assert (outcome["steps"], outcome["unsaved_steps"]) == (5, 2)
    assert outcome["checkpoint_dir"] == f"{tmp_path}/step_00000003"
    [line] = [one for one in capsys.readouterr().out.splitlines() if "NOT SAVED" in one]
    assert "the last 2 steps" in line
