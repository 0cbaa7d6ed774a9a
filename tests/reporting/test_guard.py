"""Nothing that a run writes about itself ends it: real runs whose files are blocked."""

import json
import re
from unittest import mock

from plsc_tf.jobs.builders.reporting import RunReporter
from plsc_tf.parallel.group import SingleWorker
from tests import commands
from tests.jobs.tiny_run import TINY, as_flags, settings
from tests.reporting.seen_options import OPTIONS

BLOCKED = ("report.html", "loss.png", "losses.txt", "metrics.csv", "metrics.jsonl")
# A file where a folder belongs.
FOLDERS = ("tensorboard", "visualdl")


def test_a_run_ends_well_where_nothing_about_it_can_be_written(tmp_path):
    folder = tmp_path / "run"
    for name in BLOCKED:
        (folder / name / "in the way").mkdir(parents=True)
    for name in FOLDERS:
        (folder / name).write_text("in the way")
    changes = {"num_epochs": 1, "tracker": (), "with_test": False}
    flags = as_flags({**OPTIONS, **changes, "model_save_dir": folder})
    done = commands.run("train", *flags)
    assert done.status == 0, done.err
    assert json.loads((folder / "results.json").read_text())["steps"] == 5
    assert list(folder.glob("*/manifest.json"))
    things = re.findall(r"Could not write (.*?); ", done.err)
    assert len(things) == len(set(things))
    for name in (*BLOCKED, *FOLDERS):
        assert sum(name in thing for thing in things) == 1, (name, things)
    assert "Traceback" not in done.err
    # The table at the end names what there is.
    assert "results.json" in done.out and "report.html" not in done.out


def test_a_store_out_of_reach_is_waited_for_once(caplog):
    asked = settings("nosuch://store/run", run_report=True)
    reporter = RunReporter(asked, SingleWorker())
    reporter.recorder.begin(0)
    for step in (1, 2):
        reporter.recorder.scalars(step, {"loss": 1.0})
    caplog.clear()
    reporter.close()
    assert caplog.text.count("Could not write") == 1
    assert "Could not write metrics, logs and report in nosuch://" in caplog.text


# Functions that a run describes itself with.
FAILING = {
    "tensorflow.config.experimental.tensor_float_32_execution_enabled": ValueError(),
    "matplotlib.figure.Figure.savefig": TypeError("no canvas"),
    "plsc_tf.evaluation.report.format_table": ValueError("no table"),
    "plsc_tf.options.effects.data_facts": KeyError("examples"),
    "plsc_tf.jobs.memory_plan.activations.kernels": KeyError("Conv2D"),
}
# What then cannot be written, beside the files.
UNTOLD = (
    "the report's environment",
    "the report's network",
    "the report's charts",
    "the description of the run",
    "the table of results",
)


def test_facts_that_cannot_be_told_leave_the_rest_of_the_report(
    tmp_path, logical_devices, monkeypatch
):
    for name, error in FAILING.items():
        monkeypatch.setattr(name, mock.Mock(side_effect=error))
    folder = tmp_path / "run"
    folder.mkdir()
    # What a hand or another program has left: JSON, but not the facts of a run.
    (folder / "metrics.jsonl").write_text('{"step": 0, "loss": "much"}\n')
    options = {"stop_at_step": 2, "run_report": True, "model_save_dir": folder}
    done = commands.run("train", *as_flags({**TINY, **options}))
    assert done.status == 0, done.err
    outcome = json.loads((folder / "results.json").read_text())
    assert outcome["steps"] == 2 and list(folder.glob("*/manifest.json"))
    page = (folder / "report.html").read_text()
    assert "steps per epoch" in page and f"{outcome['loss']:.5g}" in page
    for name in (*UNTOLD, "loss.png", "metrics.csv"):
        assert re.search(f"Could not write [^;]*{name}; .*Error: ", done.err), name
