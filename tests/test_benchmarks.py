"""The benchmarks run, and their figures are those that their README explains."""

import json

import pytest

from benchmarks import checkpoint, convert, head, input, options


def figures(capsys, benchmark, case):
    """Runs a benchmark; returns the figures, which are the last line, as JSON."""
    benchmark.main(case)
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_step_of_the_head_beside_its_products(capsys):
    case = {"num_classes": 301, "emb_size": 16, "global_batch": 6, "steps": 3}
    # Small enough a rate for the loss to fall from step to step.
    case |= {"warmup": 1, "rounds": 2, "learning_rate": 0.01}
    found = figures(capsys, head, options.HeadCase(**case))
    assert len(found["steps_s"]) == 6 and found["products_rows"] == [151, 150]
    ratio = found["step_s"] / found["products_s"]
    assert found["ratio"] == pytest.approx(ratio, rel=1e-4)
    grown = found["peak_rss_gb"] - found["baseline_rss_gb"]
    assert found["bytes_per_class"] * 301 / 1e9 == pytest.approx(grown, abs=1e-4)
    assert found["loss_last"] < found["loss_first"]


def test_a_wrong_option_is_named(capsys):
    with pytest.raises(SystemExit):
        options.parse(options.HeadCase, "", ["--num_classes=0"])
    assert "num_classes must be a whole number, at least 1" in capsys.readouterr().err


def test_replicas_wait_for_batches(capsys):
    case = {"count": 256, "image_size": 16, "rounds": 1, "threads": 2, "consumers": 2}
    found = figures(capsys, input, input.InputCase(**case, step_ms=0.1))
    # The first of five batches of 2 x 128 is ready.
    assert found["steps"] == 4 and 0 <= found["waiting"] < 1
    step_s = 256 / (0.8 * found["pipeline_img_s"])
    assert found["step_ms"] == pytest.approx(1000 * step_s, abs=0.1)
    cores = 25000 / found["img_s_per_core"]
    assert found["cores_for_25000_img_s"] == pytest.approx(cores, rel=0.01, abs=0.1)


def test_saving_and_restoring_beside_copies(tmp_path, capsys):
    case = {"num_classes": 7812, "emb_size": 16, "global_batch": 8, "steps": 1}
    case |= {"rounds": 1, "folder": str(tmp_path)}
    found = figures(capsys, checkpoint, checkpoint.CheckpointCase(**case))
    # Rows of 16 floats and as many of momentum; some kilobytes of backbone.
    assert found["saved_mb"] == pytest.approx(1, abs=0.2)
    assert 0 < found["seconds"]["waited"] < found["seconds"]["save_background"]
    for name in ("wait_ratio", "save_vs_cp", "restore_vs_cp"):
        assert found[name] > 0
    assert 0 <= found["extra_memory_mb"] <= 300
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_beside_copies(tmp_path, capsys):
    case = {"lines": 403, "image_bytes": 300, "rounds": 2, "folder": str(tmp_path)}
    found = figures(capsys, convert, convert.ConvertCase(**case))
    assert found["vs_copy"] > 0 and 0 <= found["peak_rss_mb"] <= 300
    assert 403 * 400 / 1e6 < found["megabytes"] + 0.05 < 0.3
    assert list(tmp_path.iterdir()) == []
