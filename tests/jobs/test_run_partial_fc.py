"""Tests that a resumed run with Partial FC continues its samples and loss state."""

import shutil

import pytest

from plsc_tf.checkpoints import manifest
from plsc_tf.jobs import train
from tests.jobs.tiny_run import settings

# The sample of Partial FC is larger than the number of classes in a batch, and the loss
# keeps statistics from step to step.
SAMPLED = {
    "loss_type": "dist_adaface",
    "num_classes": 60,
    "sample_rate": 0.5,
    "head_slot_dtype": "bfloat16",
    "dropout": 0.3,
    "learning_rate_decay_type": "cosine",
    "save_checkpoints_steps": 7,
}


def contents(checkpoint):
    """Returns the checksums of a checkpoint's files, and the state of such runs."""
    content = manifest.read(checkpoint)
    return content["files"], {**content["state"], "flags": None, "starts": None}


def test_a_resumed_partial_fc_equals_an_unbroken_one_bit_for_bit(tmp_path):
    _, whole = train.train(settings(tmp_path / "whole", **SAMPLED))
    train.train(settings(tmp_path / "parts", stop_at_step=7, **SAMPLED))
    shutil.copytree(tmp_path / "parts", tmp_path / "older")
    _, parts = train.train(settings(tmp_path / "parts", **SAMPLED))
    # The mean of all five steps of the epoch, of which two were made before.
    assert parts["loss"] == whole["loss"]
    expected, state = contents(whole["checkpoint_dir"])
    found, found_state = contents(parts["checkpoint_dir"])
    assert found_state.pop("run") != state.pop("run")  # a name of each run
    assert found_state == state and state["global_step"] == 10
    # The statistics of the norms differ from their initial values, 20 and 100.
    assert state["head_state"]["norm_mean"] != pytest.approx(20, abs=0.1)
    assert state["head_state"]["norm_deviation"] < 99
    assert found == expected and len(found) >= 3
    # A checkpoint without the loss's state resumes with the initial state.
    path = tmp_path / "older" / "step_00000007"
    content = manifest.read(str(path))
    del content["state"]["head_state"]
    (path / manifest.NAME).write_bytes(manifest.encode(content))
    older = settings(tmp_path / "older", stop_at_step=8, **SAMPLED)
    _, state = contents(train.train(older)[1]["checkpoint_dir"])
    # One step from 100: 0.99 · 100 + 0.01 · the batch's deviation, which is below 20.
    assert 99 < state["head_state"]["norm_deviation"] < 99.2
