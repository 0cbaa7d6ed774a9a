"""Tests the proof, with the user's options, that a resume is exact."""

import json
import os
import pathlib
import subprocess

import pytest

from plsc_tf.jobs import resume_proof
from plsc_tf.options.settings import Settings
from tests import commands
from tests.jobs.tiny_run import NETWORK

ROOT = pathlib.Path(__file__).parents[2]
OPTIONS = {
    "dataset_name": "mock",
    "num_classes": 7,
    "num_sample_per_epoch": 42,
    **NETWORK,
    "image_shape": "3,16,16",
    "num_replicas": 1,
    "batch_size": 10,
    "num_epochs": 2,
    "dropout": 0.4,
    "loss_type": "dist_my_losses.MyLoss",
}
MY_LOSSES = """
import tensorflow as tf
import plsc_tf
class MyLoss(plsc_tf.MarginLoss):
    def target(self, cosine, norms, state):
        return plsc_tf.Target(cosine - 0.35, tf.ones_like(cosine))
"""


@pytest.mark.parametrize(
    "processes", [1, pytest.param(3, marks=pytest.mark.slow)], ids=str
)
def test_the_command_proves_that_a_resume_is_exact(tmp_path, monkeypatch, processes):
    (tmp_path / "my_losses.py").write_text(MY_LOSSES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
    start, started = subprocess.run, []

    def in_a_process_or_here(command, **options):
        started.append(command)
        if len(started) <= processes:
            return start(command, **options)
        assert command[1:3] == ["-m", "plsc_tf.train"]
        status = commands.run("train", *command[3:]).status
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(subprocess, "run", in_a_process_or_here)
    options = {**OPTIONS, "model_save_dir": tmp_path / "run", "prove_resume": 3}
    done = commands.run("train", *(f"--{name}={v}" for name, v in options.items()))
    assert done.status == 0 and len(started) == 3, done.err
    assert done.out.startswith("Exact: 6 losses")
    proof = json.loads(done.out.splitlines()[-1])
    assert proof["exact"] and proof["files_differ"] == []
    # The training really stopped at step 3, in the middle of an epoch of five steps.
    resumed = pathlib.Path(proof["folder"], "resumed")
    results = json.loads((resumed / "results.json").read_text())
    assert results["loss_type"] == OPTIONS["loss_type"]
    assert {"step_00000003", "step_00000006"} <= {p.name for p in resumed.iterdir()}
    # A difference of one bit is detected.
    lines = (resumed / "losses.txt").read_text().splitlines()
    assert len(lines) == 6
    step, loss = lines[4].split()
    lines[4] = f"{step} {(float.fromhex(loss) * (1 + 2**-52)).hex()}"
    (resumed / "losses.txt").write_text("\n".join(lines))
    found = resume_proof.compare(proof["folder"], 3)
    assert (found["exact"], found["first_difference"]) == (False, 5)
    assert resume_proof.text(found).startswith("NOT exact: the loss of step 5 ")


def test_the_proof_needs_a_local_folder():
    settings = Settings.from_values(model_save_dir="hdfs://nowhere:1/a", prove_resume=2)
    with pytest.raises(ValueError, match="local disk.*hdfs://nowhere:1/a"):
        resume_proof.prove(settings)
