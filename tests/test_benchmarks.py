"""The benchmarks run, and their figures are those that their README explains."""

import dataclasses
import json

import pytest

from benchmarks import checkpoint, convert, head, input, options

SMALL = options.HeadCase(
    num_classes=301, emb_size=16, global_batch=6, steps=3, warmup=1, rounds=2
)


def measured(capsys):
    """(the figures, which are the last line, as JSON; the log)."""
    out, err = capsys.readouterr()
    return json.loads(out.splitlines()[-1]), err


def test_a_step_of_the_head_beside_its_products(capsys):
    # Small enough a rate for the loss to fall from step to step.
    head.main(dataclasses.replace(SMALL, learning_rate=0.01))
    figures, err = measured(capsys)
    assert len(figures["steps_s"]) == 6
    assert figures["step_min_s"] == min(figures["steps_s"])
    assert figures["products_rows"] == [151, 150]
    assert figures["products_best_s"] <= figures["products_s"]
    ratio = figures["step_s"] / figures["products_s"]
    assert figures["ratio"] == pytest.approx(ratio, rel=1e-4)
    grown = figures["peak_rss_gb"] - figures["baseline_rss_gb"]
    assert figures["bytes_per_class"] * 301 / 1e9 == pytest.approx(grown, abs=1e-4)
    assert figures["loss_last"] < figures["loss_first"]
    assert figures["parameters"]["learning_rate"] == 0.01
    assert "warm-up step 1 of 1" in err and "step 3 of 3" in err


def test_a_wrong_option_is_named(capsys):
    with pytest.raises(SystemExit):
        options.parse(options.HeadCase, "", ["--num_classes=0"])
    assert "num_classes must be a whole number, at least 1" in capsys.readouterr().err


def test_replicas_wait_for_batches(capsys):
    small = {"count": 256, "image_size": 16, "rounds": 1, "threads": 2}
    input.main(input.InputCase(consumers=2, step_ms=0.1, **small))
    figures, _ = measured(capsys)
    # The first of five batches of 2 x 128 is ready.
    assert figures["steps"] == 4 and 0 <= figures["waiting"] < 1
    assert figures["decoding_is_the_limit"]
    step_s = 256 / (0.8 * figures["pipeline_img_s"])
    assert figures["step_ms"] == pytest.approx(1000 * step_s, abs=0.1)
    cores = 25000 / figures["img_s_per_core"]
    assert figures["cores_for_25000_img_s"] == pytest.approx(cores, rel=0.01, abs=0.1)
    assert figures["lock_us_per_image"] > 0


def test_saving_and_restoring_beside_copies(tmp_path, capsys):
    case = {"megabytes": 1, "emb_size": 16, "global_batch": 8, "steps": 1, "rounds": 1}
    checkpoint.main(checkpoint.CheckpointCase(**case, folder=str(tmp_path)))
    figures, err = measured(capsys)
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


def test_a_conversion_beside_copies(tmp_path, capsys):
    case = {"lines": 403, "image_bytes": 300, "rounds": 2}
    convert.main(convert.ConvertCase(**case, folder=str(tmp_path)))
    figures, _ = measured(capsys)
    rounds = {name: len(rounds) for name, rounds in figures["rounds_s"].items()}
    assert rounds == {"convert": 2, "copy_twice": 2}
    assert figures["vs_copy"] > 0
    assert 0 <= figures["peak_rss_mb"] <= 300
    assert 403 * 400 / 1e6 < figures["megabytes"] + 0.05 < 0.3
    assert list(tmp_path.iterdir()) == []
