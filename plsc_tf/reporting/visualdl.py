"""Writes logs for VisualDL without its package.

The package requires a different NumPy version than TensorFlow. Each folder has one log
file, whose name contains `vdlrecords`. It is a sequence of records, each consisting of
its length in 8 bytes (little-endian) and a protocol buffer with the fields in
`_MESSAGES` (VisualDL 2.5, visualdl/proto/record.proto). The first record contains
metadata and has the tag `meta_data_tag`.
"""

import fnmatch
import struct
import time

from google.protobuf.message import DecodeError

from plsc_tf.data.protobuf import message_class
from plsc_tf.reporting.recorder import Sink, only_local
from plsc_tf.storage import files, local

FOLDER = "visualdl"
# The fields that this module writes.
_MESSAGES = {
    "MetaData": "display_name 1 STRING",
    "Value": "id 1 INT64, tag 2 STRING, timestamp 3 INT64, value 4 FLOAT, "
    "meta_data 10 MetaData",
    "Record": "values 1 Value*",
}
# VisualDL requires a value in each record; proto3 would not write a 0.
Record = message_class(_MESSAGES, "visualdl")


class VisualDL(Sink):
    """Writes the scalars of a run to a log for `visualdl --logdir=<folder>`.

    A resumed run appends to the existing file, because VisualDL shows only the newest
    file in a folder, and removes the records of later steps.

    Args:
        folder: log folder, on a local disk.

    Raises:
        ValueError: the folder is on a remote store, which cannot append to files.
    """

    def __init__(self, folder: str):
        self.output, self._file = only_local(folder, "visualdl"), None

    def begin(self, step):
        """Opens the run's log and removes records after `step`."""
        self.close()
        files.make_dirs(self.output)
        logs = sorted(fnmatch.filter(files.list_dir(self.output), "vdlrecords.*.log"))
        name = logs[-1] if logs else f"vdlrecords.{int(time.time()):010d}.log"
        path = files.join(self.output, name)
        kept = _length_until(files.read_limited(path, 1 << 30), step) if logs else 0
        self._file = open(path, "ab", opener=local.without_links)
        self._file.truncate(kept)
        if not kept:
            self._write(0, "meta_data_tag", meta_data={"display_name": ""})

    def scalars(self, step, values):
        """Writes `{name: number}`."""
        for name, value in values.items():
            self._write(step, name, value=value)

    def close(self):
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, step, tag, **content):
        now = int(time.time() * 1000)
        value = {"id": step, "tag": tag, "timestamp": now, **content}
        record = Record(values=[value]).SerializeToString()
        self._file.write(struct.pack("<Q", len(record)) + record)
        self._file.flush()


def _length_until(data, step):
    """Returns the length in bytes of the complete records up to a step.

    The log ends at the first unreadable data, such as zeros after a power loss.
    """
    start = 0
    while start + 8 <= len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        end = start + 8 + size
        try:
            record = Record.FromString(data[start + 8 : end])
        except DecodeError:
            break
        if not size or end > len(data) or any(one.id > step for one in record.values):
            break
        start = end
    return start
