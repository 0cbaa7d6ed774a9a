"""The benchmark of saving and restoring runs, and its ratios are what they say."""

import json

import pytest

from benchmarks import checkpoint
from benchmarks.checkpoint import CheckpointCase


def test_the_last_line_is_the_measurement_as_json(tmp_path, capsys):
    sizes = {"megabytes": 1, "emb_size": 16, "global_batch": 8}
    checkpoint.main(CheckpointCase(steps=1, rounds=1, folder=str(tmp_path), **sizes))
    out, err = capsys.readouterr()
    figures = json.loads(out.splitlines()[-1])
    # Rows of 16 floats and as many of momentum; some kilobytes of backbone.
    assert figures["saved_mb"] == pytest.approx(1, abs=0.2)
    rounds = {name: len(rounds) for name, rounds in figures["rounds_s"].items()}
    names = "save_low_memory step waited save_background step_while_saving cp_cold"
    names += " cp_while_training step_while_copying restore_cold restore"
    assert rounds == {**dict.fromkeys(names.split(), 1), "cp": 2}
    seconds = figures["seconds"]
    assert 0 < seconds["waited"] < seconds["save_background"]
    for name in ("wait_ratio", "save_vs_cp", "restore_vs_cp"):
        assert figures[name] > 0
    assert 0 <= figures["extra_memory_mb"] <= 300
    assert "round 1 of 1: save_low_memory" in err
    assert list(tmp_path.iterdir()) == []
