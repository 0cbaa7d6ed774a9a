"""The benchmarks run, and their figures are those that their README explains."""

import dataclasses
import json
import os
import resource

import pytest
from PIL import Image

from benchmarks import chart, half_precision, head, head_scaling, machine, options, peer

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


def test_options_survive_a_command_line():
    assert options.parse(options.HeadCase, "", options.arguments(SMALL)) == SMALL


def test_a_wrong_option_is_named(capsys):
    with pytest.raises(SystemExit):
        options.parse(options.HeadCase, "", ["--num_classes=0"])
    assert "num_classes must be a whole number, at least 1" in capsys.readouterr().err


def test_memory_is_checked_before_anything_is_measured():
    # 2.048 GB of weights, as much momentum, and twice as much for the products.
    case = options.HeadCase(num_classes=1_000_000, emb_size=512)
    assert head.least_memory(case) == pytest.approx(0.6e9 + 4 * 2.048e9)
    alone = dataclasses.replace(case, products=False)
    assert head.least_memory(alone) == pytest.approx(0.6e9 + 2 * 2.048e9)
    with pytest.raises(ValueError, match="need at least 2048.6 GB of memory"):
        head.check_memory(dataclasses.replace(alone, num_classes=500_000_000))


def test_what_the_peer_cannot_do_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be a checkout of insightface"):
        peer.measure(dataclasses.replace(SMALL, peer=str(tmp_path)))
    with pytest.raises(ValueError, match="no plain softmax"):
        peer.measure(dataclasses.replace(SMALL, margins="softmax"))
    with pytest.raises(ValueError, match="must divide the global batch"):
        peer.measure(dataclasses.replace(SMALL, num_replicas=4))


def test_large_heads_are_measured_on_one_number_of_replicas():
    case = head_scaling.ScalingCase(
        num_classes=(200, 10), replicas=(2, 1), most_classes=100, emb_size=8
    )
    points = [(p.num_classes, p.num_replicas, p.emb_size) for p in case.cases()]
    assert points == [(10, 2, 8), (10, 1, 8), (200, 2, 8)]


def test_the_chart_shows_every_number_of_replicas(tmp_path):
    points = [
        {
            "parameters": {
                **dataclasses.asdict(SMALL),
                "num_classes": classes,
                "num_replicas": replicas,
            },
            "step_s": classes * 1e-5,
            "products_s": classes * 0.8e-5,
            "peak_rss_gb": 0.1 * replicas,
        }
        for classes in (100, 1000)
        for replicas in (1, 2)
    ]
    time, memory = head_scaling.panels(points)
    assert [line.label for line in time.lines] == [
        "1 replica",
        "2 replicas",
        "bare products",
    ]
    assert time.lines[0].points == [(100, 1e-3), (1000, 1e-2)]
    assert memory.lines[1].points == [(100, 0.2), (1000, 0.2)]
    # Weights and momentum: 2 * 4 bytes * 16 numbers for each class.
    assert memory.lines[2].points == [
        (100, pytest.approx(1.28e-5)),
        (1000, pytest.approx(1.28e-4)),
    ]
    chart.save(tmp_path / "chart.png", [time, memory], size=(300, 200))
    with Image.open(tmp_path / "chart.png") as picture:
        assert picture.size == (600, 200)
        colors = {color for _, color in picture.getcolors(600 * 200)}
    assert len(colors) > 50


def test_memory_is_read_in_bytes():
    counted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert machine.peak_rss() == pytest.approx(counted, rel=0.05)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 1e6 < machine.available_memory() < physical


def test_half_precision_is_compared_seed_by_seed():
    runs = {
        precision: [{"accuracy": a, "images_per_second": 9.0} for a in accuracies]
        for precision, accuracies in (
            ("float32", (0.5, 0.7)),
            ("bfloat16", (0.48, 0.72)),
        )
    }
    found = half_precision.compare(runs)
    assert found["float32"]["difference"] == found["float32"]["error"] == 0
    # Differences of -0.02 and 0.02: mean 0, deviation 0.02 * 2 / sqrt(2), error 0.02.
    assert found["bfloat16"]["difference"] == pytest.approx(0)
    assert found["bfloat16"]["error"] == pytest.approx(0.02)
    assert found["bfloat16"]["mean"] == pytest.approx(0.6)
