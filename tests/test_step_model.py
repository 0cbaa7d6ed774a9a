"""The model of a step's time, on figures made by hand."""

import numpy as np
import pytest

from benchmarks import step_model, workers
from benchmarks.step_model import Gpu, Network, Shape, Speeds

SHAPE = Shape(weights=1000, embedding_size=8, num_classes=120, own_batch=4)


def test_the_speeds_of_made_up_steps_are_found():
    true = Speeds(fixed=2e-3, image=1e-4, logit=3e-8, row=5e-7)
    steps = []
    for images, rows in ((8, 1000), (16, 1000), (8, 4000), (32, 2000), (16, 8000)):
        seconds = true.fixed + images * true.image
        seconds += rows * images * true.logit + rows * true.row
        steps.append((images, rows, images, seconds))
    found = Speeds.fit(steps)
    for name in ("fixed", "image", "logit", "row"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6)


def test_terms_of_a_step():
    speeds = Speeds(fixed=1.0, image=2.0, logit=0.001, row=0.01)
    network = Network(latency=0.5, bandwidth=1000.0)
    found = step_model.terms(SHAPE, 3, speeds, network, shared=2)
    # 12 examples meet 40 classes on each of 3 replicas; two workers share a core.
    assert found["compute"] == 2 * (1 + 4 * 2)
    assert found["softmax"] == pytest.approx(2 * (40 * 12 * 0.001 + 40 * 0.01))
    gathered = 12 * 12 * 4 + 3 * 12 * 2 * 4
    summed = 2 * (12 * 4 + 4000 + 4 + 16)
    sent = 2 / 3 * (gathered + summed + 12 * 8 * 4)
    assert found["network"] == pytest.approx(7 * 0.5 + sent / 1000, rel=1e-3)
    parts = found["compute"] + found["softmax"] + found["network"]
    assert found["step"] == pytest.approx(parts)
    assert step_model.terms(SHAPE, 1, speeds, None)["network"] == 0


def test_a_bound_hides_what_fits_behind_the_backward_pass():
    gpu = Gpu("made up", flops=1e9, memory=1e9, link=1e6, per_machine=2)

    def bound(replicas, images_per_second, machines=1e4):
        return step_model.bound(SHAPE, replicas, gpu, machines, images_per_second)

    assert bound(1, 100)["network"] == 0
    near, far = bound(2, 100), bound(4, 100)
    # Over NVLink first, then through the door of each machine.
    assert far["network"] > 50 * near["network"]
    gradients = 2 * 1 / 2 * 4000 / 1e6
    assert near["hidden"] == pytest.approx(gradients)
    assert far["hidden"] == pytest.approx(0.04 * 2 / 3)
    for found in (near, far):
        parts = found["compute"] + found["softmax"] + found["network"]
        assert found["step"] == pytest.approx(parts - found["hidden"])
    assert np.isclose(far["images_per_second"], 16 / far["step"])


def test_bounds_never_promise_more_than_the_backbones():
    rows = workers.roofline()
    assert {row["gpus"] for row in rows} == {1, 8, 64}
    for row in rows:
        most = row["gpus"] * step_model.R50_IMAGES
        full, half = row["images_per_second"], row["half_images_per_second"]
        assert 0 < full <= half * (1 + 1e-9) < most
        assert row["efficiency"] == pytest.approx(row["images_per_second"] / most)
