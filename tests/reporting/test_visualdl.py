"""VisualDL's records, parsed by protobuf from the message's own definition."""

import io
import logging
import struct

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from PIL import Image

from plsc_tf.reporting.recorder import Recorder
from plsc_tf.reporting.visualdl import VisualDL

# visualdl/proto/record.proto of VisualDL 2.5, what of it is written here.
FIELDS = {
    "Image": [("encoded_image_string", 4, "BYTES")],
    "Histogram": [("hist", 1, "DOUBLE*"), ("bin_edges", 2, "DOUBLE*")],
    "MetaData": [("display_name", 1, "STRING")],
    "Value": [
        ("id", 1, "INT64"),
        ("tag", 2, "STRING"),
        ("timestamp", 3, "INT64"),
        ("value", 4, "FLOAT"),
        ("image", 5, "Image"),
        ("histogram", 8, "Histogram"),
        ("meta_data", 10, "MetaData"),
    ],
    "Record": [("values", 1, "Value*")],
}


@pytest.fixture(scope="module")
def record():
    file = descriptor_pb2.FileDescriptorProto(
        name="record.proto", package="vdl", syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            many, kind = kind.endswith("*"), kind.rstrip("*")
            made = message.field.add(name=field, number=number)
            made.label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
            if kind in FIELDS:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".vdl.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("vdl.Record"))


def values_of(folder, record):
    (path,) = folder.glob("vdlrecords.*.log")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack_from("<Q", data)
        (value,) = record.FromString(data[8 : 8 + size]).values
        found.append(value)
        data = data[8 + size :]
    return found


def test_records_are_what_was_told(tmp_path, record):
    log = VisualDL(str(tmp_path))
    log.begin(0)
    log.scalars(300, {"loss": 1.5, "lr": 0.0})
    log.histogram(300, "angles", np.arange(100))
    picture = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 3), np.uint8)
    log.images(301, "input", picture)
    log.close()
    first, loss, rate, angles, image = values_of(tmp_path, record)
    assert first.tag == "meta_data_tag" and first.HasField("meta_data")
    assert (loss.id, loss.tag, loss.value) == (300, "loss", 1.5)
    assert loss.timestamp > 1.6e12  # milliseconds
    assert (rate.tag, rate.value) == ("lr", 0.0)
    assert list(angles.histogram.hist) == [2.0] * 50
    assert np.allclose(angles.histogram.bin_edges, np.linspace(0, 99, 51))
    assert (image.id, image.tag) == (301, "input/0")
    shown = Image.open(io.BytesIO(image.image.encoded_image_string))
    assert np.array_equal(np.asarray(shown), picture[0])


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path, record):
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
    found = [(value.id, value.value) for value in values_of(tmp_path, record)[1:]]
    assert found == [(1, 1), (2, 2), (3, 3), (4, 40)]


def test_a_remote_folder_is_refused():
    with pytest.raises(ValueError, match="local"):
        VisualDL("hdfs://namenode:9000/run/visualdl")


@pytest.mark.parametrize(
    "tail", [bytes(64), struct.pack("<Q", 4) + b"\xff" * 4, struct.pack("<Q", 2**63)]
)
def test_a_tail_that_cannot_be_read_is_the_end(tmp_path, record, tail):
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
    found = [(value.id, value.value) for value in values_of(tmp_path, record)[1:]]
    assert found == [(1, 1), (2, 2)]


def test_values_that_are_not_finite_are_left_out_and_told(tmp_path, record, caplog):
    log = VisualDL(str(tmp_path))
    log.begin(0)
    with caplog.at_level(logging.WARNING, logger="absl"):
        log.histogram(1, "angles", np.array([np.nan, 1.0, np.inf]))
        log.histogram(2, "angles", np.array([np.nan]))
    log.close()
    (angles,) = values_of(tmp_path, record)[1:]
    assert sum(angles.histogram.hist) == 1
    assert "angles at step 1: 2 of 3 values are not finite" in caplog.text
    assert "angles at step 2: 1 of 1" in caplog.text


def test_a_folder_that_cannot_be_had_costs_the_log_only(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    log = Recorder([VisualDL(str(tmp_path / "file" / "visualdl"))])
    with caplog.at_level(logging.WARNING, logger="absl"):
        log.begin(0)
        log.scalars(1, {"loss": 1.0})
        log.close()
    assert caplog.text.count("Could not write") == 1
