"""Files and logs of figures: their content, and what a resumed run removes."""

import contextlib
import os
import struct
import time

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from plsc_tf.reporting import metrics_files, projector, visualdl
from plsc_tf.reporting.metrics_files import MetricsFiles
from plsc_tf.reporting.tensorboard import TensorBoard
from plsc_tf.reporting.visualdl import Record, VisualDL
from tests.reporting.conftest import rows_of


@pytest.mark.parametrize("kind", [MetricsFiles, VisualDL])
def test_links_are_not_followed(tmp_path, kind):
    (tmp_path / "precious").write_text("mine")
    folder, names = tmp_path / "run", ("metrics.jsonl", "vdlrecords.9.log")
    folder.mkdir()
    sink = kind(str(folder))
    with contextlib.suppress(OSError):
        for begin in (sink.begin, lambda step: sink.scalars(step, {"loss": 1.0})):
            for path in map(folder.joinpath, names):
                path.unlink(missing_ok=True)
                path.symlink_to(tmp_path / "precious")
            begin(1)
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_sparse_file_fills_no_memory(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    os.truncate(tmp_path / "metrics.jsonl", 1 << 30)
    with pytest.raises(ValueError, match="bytes"):
        metrics_files.read(str(tmp_path / "metrics.jsonl"))


def write(kind, folder, begin, losses):
    """Begins a sink at a step, tells it the losses by step, and closes it."""
    if kind is TensorBoard:  # it orders files by the second in which they were created
        time.sleep(1.01 - time.time() % 1)
    sink = kind(str(folder))
    sink.begin(begin)
    for step, loss in losses.items():
        sink.scalars(step, {"loss": float(loss)})
    sink.close()
    return sink


def test_figures_of_a_step_join_its_row_and_new_names_the_table(tmp_path):
    metrics = MetricsFiles(str(tmp_path))
    metrics.begin(0)
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
    # The last line of a step counts.
    assert list({row["step"]: row for row in rows_of(tmp_path)}.values()) == expected
    metrics.flush()
    assert rows_of(tmp_path) == expected
    table = ["step,loss,verification/a", "1,2.5,", "2,1.25,0.75", "3,nan,"]
    assert (tmp_path / "metrics.csv").read_text().splitlines() == table


def test_what_was_never_begun_does_not_empty_the_files(tmp_path):
    write(MetricsFiles, tmp_path, 0, {1: 1})
    MetricsFiles(str(tmp_path)).close()
    assert rows_of(tmp_path) == [{"step": 1, "loss": 1.0}]
    write(MetricsFiles, tmp_path, 1, {2: 2})
    assert [row["step"] for row in rows_of(tmp_path)] == [1, 2]


def losses_of(folder):
    events = EventAccumulator(str(folder), {"tensors": 0}).Reload().Tensors("loss")
    return [(one.step, float(tf.make_ndarray(one.tensor_proto))) for one in events]


def test_a_log_goes_on_after_a_close_also_on_a_remote_store(tmp_path, gfile_root):
    for folder in (str(tmp_path / "here"), f"{gfile_root}/there"):
        log = TensorBoard(folder)
        for step in (1, 2):
            log.begin(step - 1)
            log.scalars(step, {"loss": 1.0})
            log.close()
        log.close()
        assert losses_of(tmp_path / folder.rpartition("/")[2]) == [(1, 1), (2, 1)]


def values_of(folder):
    (path,) = folder.glob("vdlrecords.*.log")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack_from("<Q", data)
        (value,) = Record.FromString(data[8 : 8 + size]).values
        found.append(value)
        data = data[8 + size :]
    return found


def test_the_bytes_of_a_record(tmp_path, monkeypatch):
    """By hand, as visualdl/proto/record.proto of VisualDL 2.5 numbers the fields."""
    monkeypatch.setattr(visualdl.time, "time", lambda: 0.001)
    write(VisualDL, tmp_path, 0, {300: 1.5})
    (path,) = tmp_path.glob("vdlrecords.*.log")
    scalar = b"\x08\xac\x02\x12\x04loss\x18\x01\x25" + struct.pack("<f", 1.5)
    record = b"\x0a" + bytes([len(scalar)]) + scalar
    assert path.read_bytes().endswith(struct.pack("<Q", len(record)) + record)
    first, _ = values_of(tmp_path)
    assert first.tag == "meta_data_tag" and first.HasField("meta_data")


def test_a_remote_folder_is_refused():
    with pytest.raises(ValueError, match="local"):
        VisualDL("hdfs://namenode:9000/run/visualdl")


READERS = {
    MetricsFiles: lambda path: [(row["step"], row["loss"]) for row in rows_of(path)],
    TensorBoard: losses_of,
    VisualDL: lambda path: [(one.id, one.value) for one in values_of(path)[1:]],
}


@pytest.mark.parametrize(
    ("kind", "tail"),
    [
        # What a kill may leave at the end of a file.
        (MetricsFiles, b'{"step": 3, "loss": 3.0}\n{"step": 6, "lo'),
        (TensorBoard, b""),
        (VisualDL, struct.pack("<Q", 50) + b"\x0a"),
        (VisualDL, bytes(64)),
        (VisualDL, struct.pack("<Q", 4) + b"\xff" * 4),
        (VisualDL, struct.pack("<Q", 2**63)),
    ],
)
def test_a_resumed_run_takes_later_steps_back(tmp_path, kind, tail):
    write(kind, tmp_path, 0, {step: step for step in range(1, 6)})
    for path in (*tmp_path.glob("vdlrecords.*.log"), *tmp_path.glob("*.jsonl")):
        path.write_bytes(path.read_bytes() + tail)
    for begin in (5, 3):
        write(kind, tmp_path, begin, {begin + 1: 40})
    assert READERS[kind](tmp_path) == [(1, 1), (2, 2), (3, 3), (4, 40)]
    # Of one that begins anew nothing is left.
    write(kind, tmp_path, 0, {1: 7})
    assert READERS[kind](tmp_path) == [(1, 7)]


@pytest.mark.parametrize("name", ["lfw", "own/easy", 'the "good" ones\\', "../up"])
def test_any_name_of_a_set_will_do(tmp_path, name):
    pictures = np.zeros((2, 8, 8, 3), np.uint8)
    folder = tmp_path / "logs"
    projector.write(str(folder), name, np.eye(2), ["a", "b"], pictures)
    text = (folder / "projector_config.pbtxt").read_text()
    (found,) = text_format.Parse(text, ProjectorConfig()).embeddings
    assert found.tensor_name == name
    for path in (found.tensor_path, found.metadata_path, found.sprite.image_path):
        assert (folder / path).parent == folder and (folder / path).is_file()
    assert len(list(folder.iterdir())) == 4
    np.testing.assert_array_equal(np.loadtxt(folder / found.tensor_path), np.eye(2))
