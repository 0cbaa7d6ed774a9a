"""Tables of layers and variables, against the model's own numbers."""

import re

import numpy as np
import pytest

from plsc_tf.jobs import run_report
from plsc_tf.reporting import layers


def test_content_is_statistics_and_first_values(make_model, pictures):
    model = make_model(replicas=1)
    before = [v.numpy() for v in model.variables]
    rows = dict(layers.describe(model, pictures[0], content=True))
    np.testing.assert_equal([v.numpy() for v in model.variables], before)
    output = model.embed(pictures[0])
    found = re.search(r"mean (\S+)  deviation (\S+) .* first (\S+)", rows["Dense last"])
    expected = [output.mean(), output.std(), output[0, 0]]
    assert [float(text) for text in found.groups()] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("dense", [False, True])
def test_statistics_count(make_model, dense):
    text = layers.statistics(make_model(dense=dense))
    # Keras's table of layers.
    assert re.search(r"conv \(Conv2D\) .* \(None, 3, 3, 4\) .* 112 ", text)
    # 3·3·3·4 + 4 and 36·6 + 6.
    assert re.search(r"Trainable params: 334 ", text)
    assert re.search(r"\nhead/weight +5×6", text)


def test_flops_and_parameters_are_those_counted_by_hand(make_model):
    model = make_model()
    # Conv2D 3 × 3, stride 2, of 8 × 8 × 3 to 3 × 3 × 4: 27 products for each of 36
    # outputs; Dense 36 to 6.
    assert run_report.flops(model) == 2 * 27 * 36 + 2 * 36 * 6
    told = run_report.network(model)
    assert told["network parameters"] == f"{27 * 4 + 4 + 36 * 6 + 6:,}"
    assert told["head parameters"] == "30: weight 5×6"
