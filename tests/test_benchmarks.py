"""The benchmarks run, and their figures are those that their README explains."""

import dataclasses
import json

import pytest

from benchmarks import head, input, options

SMALL = options.HeadCase(
    num_classes=301, emb_size=16, global_batch=6, steps=3, warmup=1, rounds=2
)


def test_the_last_line_is_the_measurement_as_json(capsys):
    # Small enough a rate for the loss to fall from step to step.
    head.main(dataclasses.replace(SMALL, learning_rate=0.01))
    out, err = capsys.readouterr()
    figures = json.loads(out.splitlines()[-1])
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
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    # The first of five batches of 2 x 128 is ready.
    assert figures["steps"] == 4 and 0 <= figures["waiting"] < 1
    assert figures["decoding_is_the_limit"]
    step_s = 256 / (0.8 * figures["pipeline_img_s"])
    assert figures["step_ms"] == pytest.approx(1000 * step_s, abs=0.1)
    cores = 25000 / figures["img_s_per_core"]
    assert figures["cores_for_25000_img_s"] == pytest.approx(cores, rel=0.01, abs=0.1)
    assert figures["lock_us_per_image"] > 0
