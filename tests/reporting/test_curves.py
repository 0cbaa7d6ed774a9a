"""Charts of a run's rows: what they show, as SVG and as pixels."""

import dataclasses

import pytest

from plsc_tf.reporting import curves


def axes_of(chart):
    return chart.figure().axes[0]


def test_a_long_curve_is_thinned_to_means():
    rows = [{"step": i, "loss": i % 2} for i in range(4000)]
    (thin,) = curves.chart("Loss", rows).curves.values()
    assert len(thin) == 400 and thin[0] == (4.5, 0.5)


def test_charts_are_of_what_rows_hold():
    rows = [
        {"step": 1, "loss": 2.0, "accuracy": 0.1, "learning_rate": 0.1},
        {"step": 2, "loss": None, "accuracy": 0.2, "learning_rate": 0.1},
        {"step": 3, "loss": 1.0, "accuracy": 0.3, "verification/lfw_accuracy": 0.9},
    ]
    titles = [chart.title for chart in curves.all_of(rows)]
    assert titles == ["Loss", "Accuracy", "Learning rate"]
    loss = curves.chart("Loss", rows)
    assert loss.curves == {"loss": [(1.0, 2.0), (3.0, 1.0)]}
    # A set of such a name would end an evaluation after its last step.
    assert r"a$\bad$" in dataclasses.replace(loss, curves={r"a$\bad$": [(1, 2)]}).svg()
    accuracy = curves.all_of(rows)[1]
    assert list(accuracy.curves) == ["accuracy", "verification lfw accuracy"]
    assert curves.chart("Loss", []) is None and curves.all_of([]) == []


def test_a_loss_over_decades_has_a_logarithmic_axis():
    rows = [{"step": step, "loss": 10.0 ** (2 - step)} for step in range(1, 5)]
    assert axes_of(curves.chart("Loss", rows)).get_yscale() == "log"
    assert axes_of(curves.chart("Loss", rows[:2])).get_yscale() == "linear"


def test_resumes_are_marked():
    rows = [{"step": step, "loss": 9.0 - step} for step in range(1, 9)]
    chart = curves.chart("Loss", rows, resumed=[3, 6, 8])
    lines = axes_of(chart).get_lines()[1:]
    assert [line.get_xdata()[0] for line in lines] == [3, 6]  # at 8 nothing followed
    assert chart.svg().count(">resumed<") == 1  # once in the legend
    # A stranger's run can name any number of them.
    assert len(axes_of(curves.chart("Loss", rows, [3] * 10**5)).get_lines()) < 99


@pytest.mark.parametrize(("count", "marker"), [(1, "o"), (2, "")])
def test_one_point_can_be_seen(count, marker):
    rows = [{"step": 5 + i, "loss": 3.0} for i in range(count)]
    (line,) = axes_of(curves.chart("Loss", rows)).get_lines()
    assert line.get_marker() == marker
