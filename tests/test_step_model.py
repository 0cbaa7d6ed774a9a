"""The model of a step's time, on figures made by hand."""

import pytest

from benchmarks import step_model
from benchmarks.step_model import Network, Shape, Speeds

SHAPE = Shape(weights=1000, embedding_size=8, num_classes=120, own_batch=4)


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
