"""Charts of a run's rows, as SVG and as pixels."""

import io

import numpy as np
from PIL import Image, ImageColor

from plsc_tf.evaluation import png, svg
from plsc_tf.training.seeing import curves


def test_a_long_curve_is_thinned_to_means():
    points = [(float(i), float(i % 2)) for i in range(4000)]
    thin = curves.thinned(points, most=400)
    assert len(thin) == 400 and thin[0] == (4.5, 0.5)
    assert curves.thinned(points[:400], most=400) == points[:400]


def test_charts_are_of_what_rows_hold():
    rows = [
        {"step": 1, "loss": 2.0, "accuracy": 0.1, "learning_rate": 0.1},
        {"step": 2, "loss": None, "accuracy": 0.2, "learning_rate": 0.1},
        {"step": 3, "loss": 1.0, "accuracy": 0.3, "verification/lfw_accuracy": 0.9},
    ]
    titles = [chart.title for chart in curves.all_of(rows)]
    assert titles == ["Loss", "Accuracy", "Learning rate"]
    loss = curves.loss(rows)
    assert loss.curves == [svg.Curve("loss", [(1.0, 2.0), (3.0, 1.0)])]
    accuracy = curves.all_of(rows)[1]
    assert [c.label for c in accuracy.curves] == [
        "accuracy",
        "verification lfw accuracy",
    ]
    assert curves.loss([]) is None and curves.all_of([]) == []


def test_a_loss_over_decades_has_a_logarithmic_axis():
    rows = [{"step": step, "loss": 10.0 ** (2 - step)} for step in range(1, 5)]
    chart = curves.loss(rows)
    assert chart.y.log and (chart.y.low, chart.y.high) == (0.01, 10)


def test_the_curve_is_drawn_where_its_points_are():
    rows = [
        {"step": 0, "loss": 0.0},
        {"step": 50, "loss": 1.0},
        {"step": 100, "loss": 1.0},
    ]
    chart = curves.loss(rows)
    image = Image.open(io.BytesIO(chart.as_png())).convert("RGB")
    assert image.size == (png.WIDTH, png.HEIGHT)
    scale = png.OVERSAMPLING
    left, right = png.LEFT / scale, png.WIDTH - png.RIGHT / scale
    top, bottom = png.TOP / scale, png.HEIGHT - png.BOTTOM / scale
    color = np.array(ImageColor.getrgb(svg.COLORS[0]))
    # Three quarters to the right the curve is level, at loss 1.
    x = round(left + 0.75 * (right - left))
    y = bottom - chart.y.place(1.0) * (bottom - top)
    column = np.asarray(image)[:, x].astype(int)
    blue = np.flatnonzero(np.abs(column - color).max(axis=1) < 60)
    assert len(blue) and np.abs(blue - y).max() <= 2
    assert tuple(image.getpixel((x, round(y) + 20))) == (255, 255, 255)


def test_more_accuracies_than_colors_take_another_chart():
    names = [f"verification/set{number}_accuracy" for number in range(8)]
    rows = [{"step": step, **dict.fromkeys(names, 0.5)} for step in (1, 2)]
    charts = curves.all_of(rows)
    assert [chart.title for chart in charts] == ["Accuracy, 1", "Accuracy, 2"]
    labels = [curve.label for chart in charts for curve in chart.curves]
    assert labels == [f"verification set{number} accuracy" for number in range(8)]
    assert len(charts[0].curves) == len(svg.COLORS)
    assert "set7" in charts[1].as_svg()


def test_one_point_can_be_drawn():
    chart = curves.loss([{"step": 5, "loss": 3.0}])
    assert chart.as_svg().count("<circle") == 1
    two = curves.loss([{"step": 5, "loss": 3.0}, {"step": 6, "loss": 2.0}])
    assert "<circle" not in two.as_svg()
    assert Image.open(io.BytesIO(chart.as_png())).size == (png.WIDTH, png.HEIGHT)
