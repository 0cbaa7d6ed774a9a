"""Rows of figures in files: joined, taken back, and never in the training's way."""

import csv
import json

import pytest

from plsc_tf.reporting.metrics_files import MetricsFiles


def rows_of(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def table_of(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture
def metrics(tmp_path):
    made = MetricsFiles(str(tmp_path))
    made.begin(0)
    return made


def test_figures_of_a_step_join_its_row_and_new_names_the_table(metrics, tmp_path):
    metrics.scalars(1, {"loss": 2.5})
    metrics.scalars(2, {"loss": 1.5})
    metrics.scalars(2, {"verification/a": 0.75})
    metrics.scalars(2, {"loss": 1.25})
    metrics.scalars(3, {"loss": float("nan")})
    expected = [
        {"step": 1, "loss": 2.5},
        {"step": 2, "loss": 1.25, "verification/a": 0.75},
        {"step": 3, "loss": None},
    ]
    assert rows_of(tmp_path) == expected
    metrics.flush()
    assert rows_of(tmp_path) == expected
    assert table_of(tmp_path) == [
        ["step", "loss", "verification/a"],
        ["1", "2.5", ""],
        ["2", "1.25", "0.75"],
        ["3", "nan", ""],
    ]


def test_a_resumed_run_takes_later_rows_back(metrics, tmp_path):
    for step in range(1, 6):
        metrics.scalars(step, {"loss": float(step)})
    metrics.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "lo')  # cut off by a kill
    again = MetricsFiles(str(tmp_path))
    again.begin(3)
    again.scalars(4, {"loss": 40.0})
    again.close()
    assert [row["loss"] for row in rows_of(tmp_path)] == [1, 2, 3, 40]
    assert [row[1] for row in table_of(tmp_path)[1:]] == ["1.0", "2.0", "3.0", "40.0"]
    assert [row["step"] for row in again.rows] == [1, 2, 3, 4]


def test_a_folder_that_is_gone_costs_the_files_only(tmp_path):
    (tmp_path / "file").write_text("no folder")
    metrics = MetricsFiles(str(tmp_path / "file" / "run"))
    metrics.begin(0)
    metrics.scalars(1, {"loss": 1.0})
    metrics.close()
    assert metrics.rows == [{"step": 1, "loss": 1.0}]


def test_what_was_never_begun_does_not_empty_the_files(metrics, tmp_path):
    metrics.scalars(1, {"loss": 1.0})
    metrics.close()
    other = MetricsFiles(str(tmp_path))
    other.close()
    assert rows_of(tmp_path) == [{"step": 1, "loss": 1.0}]
    other.begin(1)
    other.scalars(2, {"loss": 2.0})
    other.close()
    assert [row["step"] for row in rows_of(tmp_path)] == [1, 2]
