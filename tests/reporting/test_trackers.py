"""Runs in MLflow's SQLite store and W&B's offline files, read by their libraries."""

import importlib.util
import json
import socket
import struct
import subprocess
import sys
import time

import pytest

import plsc_tf
from plsc_tf.jobs.builders.reporting import RunReporter
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.reporting import tracker_process, trackers
from plsc_tf.reporting.recorder import Recorder
from plsc_tf.reporting.tensorboard import TensorBoard
from tests import commands, required
from tests.jobs.tiny_run import settings
from tests.reporting.conftest import rows_of
from tests.reporting.seen_options import PASSWORD, TRACKERS


@pytest.fixture(autouse=True)
def installed():
    if len(TRACKERS) < 2:
        required.skip("TRACKERS", "pip install 'plsc_tf[mlflow,wandb]'")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The URI of an empty store of MLflow."""
    monkeypatch.chdir(tmp_path)  # MLflow puts artifacts there
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


def mlflow_run(uri):
    """The client of a store and the only run in it."""
    import mlflow

    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs(["0"])
    return client, run


def wandb_records(path):
    """Reads W&B's file: after a header of 7 bytes, it is a LevelDB log."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, record = path.read_bytes(), 7, b""
    while position < len(data):
        if (rest := -position % 32768) < 7:  # padding at the end of a block
            position += rest
        length, kind = struct.unpack_from("<HB", data, position + 4)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield Record.FromString(record)
            record = b""


def test_mlflow_has_the_resumed_run_as_one(seen):
    client, run = mlflow_run(f"sqlite:///{seen.folder.parent}/mlflow.db")
    assert (run.info.status, run.info.run_name) == ("FINISHED", seen.folder.name)
    assert run.data.params["margin"] and run.data.params["fs_ugi"] == "joe,***"
    assert run.data.tags["resumed/stop_at_step"] == "0"
    for name in ("loss", "epoch/loss", "verification/mock_accuracy"):
        history = client.get_metric_history(run.info.run_id, name)
        # Steps 6 to 8 were repeated after the kill.
        last = {one.step: one.value for one in history}
        rows = [row for row in rows_of(seen.folder) if name in row]
        assert last | {row["step"]: row[name] for row in rows} == last
    stored = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert stored == {"report.html", "loss.png", "results.json"}


def test_wandb_has_the_resumed_run_as_one(seen):
    paths = sorted(seen.folder.glob("wandb/offline-run-*/*.wandb"))
    first, resumed = (list(wandb_records(path)) for path in paths)
    (run,) = [one.run for one in resumed if one.HasField("run")]
    assert [one.run.run_id for one in first if one.HasField("run")] == [run.run_id]
    changes = [change for one in resumed for change in one.config.update]
    config = {one.key: json.loads(one.value_json) for one in changes}
    assert config["fs_ugi"] == "joe,***" and config["batch_size"] == "5"
    found = {}
    for record in first + resumed:
        items = {(*one.nested_key, one.key)[0]: one for one in record.history.item}
        row = {name: json.loads(one.value_json) for name, one in items.items()}
        if row := {name: value for name, value in row.items() if name[:1] != "_"}:
            found.setdefault(row["step"], {}).update(row)
    rows = {row["step"]: row for row in rows_of(seen.folder)}
    assert {step: found[step] | row for step, row in rows.items()} == found
    (artifact,) = [one.artifact for one in resumed if one.HasField("artifact")]
    files = [one.path for one in artifact.manifest.contents]
    assert sorted(files) == ["loss.png", "report.html", "results.json"]
    assert [one.exit.exit_code for one in resumed if one.HasField("exit")] == [0]
    for path in seen.folder.glob("wandb/**/*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes()


@pytest.mark.parametrize("name", TRACKERS)
@pytest.mark.parametrize("silent", [False, True])
def test_a_failing_tracker_is_logged_once(tmp_path, monkeypatch, caplog, name, silent):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        variables = {"MLFLOW_TRACKING_URI": url, "WANDB_BASE_URL": url}
        variables |= {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40}
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(trackers, "LIMIT_S", 15)
        if not silent:  # nothing listens at the URL
            server.close()
        recorder = Recorder([plsc_tf.Tracker(name, str(tmp_path))])
        recorder.begin(0)
        start = time.monotonic()
        for step in range(2000):
            recorder.scalars(step, {"loss": 1.0})
        assert time.monotonic() - start < 10  # nothing is waited for in a step
        recorder.finish(())
        recorder.close()
    assert caplog.text.count(f"Could not write the run in {name}; ") == 1


def test_the_run_of_a_killed_process_is_shown_as_failed(store):
    calls = '["start", null, "run", {}]\n["log", 1, {"verification/a*b": 2.0}]\n'
    command = [sys.executable, "-P", tracker_process.__file__, "mlflow"]
    subprocess.run(command, input=calls, text=True, check=True, stdout=subprocess.PIPE)
    _, run = mlflow_run(store)
    assert run.info.status == "FAILED"
    assert run.data.metrics == {"verification/a_b": 2.0}


def test_fit_with_a_callback(store, tmp_path, make_model, pictures):
    tracker = plsc_tf.Tracker("mlflow", str(tmp_path / "run"), {"embedding_size": 6})
    board = TensorBoard(str(tmp_path / "run" / "tensorboard"))
    track = plsc_tf.Tracking(tracker, board, global_batch_size=10, every_n_steps=1)
    make_model().fit(*pictures, batch_size=10, epochs=2, callbacks=[track], verbose=0)
    client, run = mlflow_run(store)
    assert (run.info.status, run.data.params) == ("FINISHED", {"embedding_size": "6"})
    for name in ("loss", "epoch/loss"):
        history = client.get_metric_history(run.info.run_id, name)
        assert [one.step for one in history] == [1, 2]
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_trackers_that_cannot_be_used_are_errors_at_the_start(tmp_path, monkeypatch):
    done = commands.run("train", "--tracker=wand", folder=tmp_path)
    assert done.status == 2 and "wandb, mlflow, tensorboard" in done.err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'plsc_tf\[wandb\]'"):
        RunReporter(settings(tmp_path, tracker="wandb"), SingleWorker())
    # This one is the option tensorboard.
    asked = settings(tmp_path, tracker="tensorboard", tensorboard=False)
    sinks = RunReporter(asked, SingleWorker()).recorder.sinks
    assert [type(one) for one in sinks].count(TensorBoard) == 1
