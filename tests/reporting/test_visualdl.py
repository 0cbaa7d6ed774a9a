"""VisualDL's records, and what a resumed run removes of them."""

import io
import logging
import struct

import numpy as np
import pytest
from PIL import Image

from plsc_tf.reporting import visualdl
from plsc_tf.reporting.recorder import Recorder
from plsc_tf.reporting.visualdl import VisualDL, record_class


def values_of(folder):
    (path,) = folder.glob("vdlrecords.*.log")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack_from("<Q", data)
        (value,) = record_class().FromString(data[8 : 8 + size]).values
        found.append(value)
        data = data[8 + size :]
    return found


def test_the_bytes_of_a_record(tmp_path, monkeypatch):
    """By hand, as visualdl/proto/record.proto of VisualDL 2.5 numbers the fields."""
    monkeypatch.setattr(visualdl.time, "time", lambda: 0.001)
    log = VisualDL(str(tmp_path))
    log.begin(0)
    log.scalars(300, {"loss": 1.5})
    log.close()
    (path,) = tmp_path.glob("vdlrecords.*.log")
    scalar = b"\x08\xac\x02\x12\x04loss\x18\x01\x25" + struct.pack("<f", 1.5)
    record = b"\x0a" + bytes([len(scalar)]) + scalar
    assert path.read_bytes().endswith(struct.pack("<Q", len(record)) + record)


def test_records_are_what_was_told(tmp_path):
    log = VisualDL(str(tmp_path))
    log.begin(0)
    log.scalars(300, {"loss": 1.5, "lr": 0.0})
    log.histogram(300, "angles", np.array([*range(100), np.nan, np.inf]))
    picture = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 3), np.uint8)
    log.images(301, "input", picture)
    log.close()
    first, loss, rate, angles, image = values_of(tmp_path)
    assert first.tag == "meta_data_tag" and first.HasField("meta_data")
    assert (loss.id, loss.tag, loss.value) == (300, "loss", 1.5)
    assert loss.timestamp > 1.6e12  # milliseconds
    assert (rate.tag, rate.value) == ("lr", 0.0)
    assert list(angles.histogram.hist) == [2.0] * 50
    assert np.allclose(angles.histogram.bin_edges, np.linspace(0, 99, 51))
    assert (image.id, image.tag) == (301, "input/0")
    shown = Image.open(io.BytesIO(image.image.encoded_image_string))
    assert np.array_equal(np.asarray(shown), picture[0])


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path):
    log = VisualDL(str(tmp_path))
    log.begin(0)
    for step in range(1, 6):
        log.scalars(step, {"loss": step})
    log.close()
    (path,) = tmp_path.glob("vdlrecords.*.log")
    with open(path, "ab") as file:
        file.write(struct.pack("<Q", 50) + b"\x0a")  # cut off by a kill
    again = VisualDL(str(tmp_path))
    again.begin(3)
    again.scalars(4, {"loss": 40})
    again.close()
    found = [(value.id, value.value) for value in values_of(tmp_path)[1:]]
    assert found == [(1, 1), (2, 2), (3, 3), (4, 40)]


def test_a_remote_folder_is_refused():
    with pytest.raises(ValueError, match="local"):
        VisualDL("hdfs://namenode:9000/run/visualdl")


@pytest.mark.parametrize(
    "tail", [bytes(64), struct.pack("<Q", 4) + b"\xff" * 4, struct.pack("<Q", 2**63)]
)
def test_a_tail_that_cannot_be_read_is_the_end(tmp_path, tail):
    log = VisualDL(str(tmp_path))
    log.begin(0)
    log.scalars(1, {"loss": 1.0})
    log.close()
    (path,) = tmp_path.glob("vdlrecords.*.log")
    path.write_bytes(path.read_bytes() + tail)
    again = VisualDL(str(tmp_path))
    again.begin(1)
    again.scalars(2, {"loss": 2.0})
    again.close()
    found = [(value.id, value.value) for value in values_of(tmp_path)[1:]]
    assert found == [(1, 1), (2, 2)]


def test_a_folder_that_cannot_be_had_costs_the_log_only(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    log = Recorder([VisualDL(str(tmp_path / "file" / "visualdl"))])
    with caplog.at_level(logging.WARNING, logger="absl"):
        log.begin(0)
        log.scalars(1, {"loss": 1.0})
        log.close()
    assert caplog.text.count("Could not write") == 1
