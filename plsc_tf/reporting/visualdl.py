"""Logs that VisualDL shows, in its own format, without its package.

A log is a file whose name holds `vdlrecords`, one per folder. It is a sequence of
records: the length as 8 bytes, little-endian, then so many bytes of a protocol buffer
(VisualDL 2.5, visualdl/proto/record.proto):

    Record {repeated Value values = 1}
    Value {int64 id = 1 (the step); string tag = 2; int64 timestamp = 3;
           oneof {float value = 4; Image image = 5; Histogram histogram = 8;
                  MetaData meta_data = 10}}
    Image {bytes encoded_image_string = 4}
    Histogram {repeated double hist = 1; repeated double bin_edges = 2}
    MetaData {string display_name = 1}

The first record is meta data with the tag `meta_data_tag`.
"""

import io
import struct
import time

import numpy as np
from absl import logging
from PIL import Image

from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

FOLDER = "visualdl"
BINS = 50
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


class VisualDL:
    """Writes what `visualdl --logdir=<folder>` shows.

    A resumed run goes on with the file, of which the newest in a folder is shown, and
    takes back what is later than the step that it goes on from.

    Args:
        folder: on a local disk.

    Raises:
        ValueError: it is elsewhere, where nothing can be added to a file.

    Attributes:
        folder: where the log is.
    """

    def __init__(self, folder):
        if not files.is_local(folder):
            raise ValueError(
                "visualdl adds records to a file, which only a local disk can take. "
                f"Received: {folder}. Leave it out, or train into a local "
                "model_save_dir and set fs_dir_for_save, to which it is copied."
            )
        self.folder = local_path(folder)
        self._file = None

    def begin(self, step):
        """Opens the log of the run, without what is later than `step`."""
        self.close()
        if not self._open(step):
            self._write(0, "meta_data_tag", _field(10, _BYTES, b""))

    def _open(self, step):
        """Opens the file; returns the bytes that are kept of it."""
        files.make_dirs(self.folder)
        logs = sorted(n for n in files.list_dir(self.folder) if "vdlrecords" in n)
        name = logs[-1] if logs else f"vdlrecords.{int(time.time()):010d}.log"
        path = files.join(self.folder, name)
        kept = _length_until(files.read(path), step) if logs else 0
        self._file = open(path, "ab")
        self._file.truncate(kept)
        return kept

    def scalars(self, step, values):
        """Writes `{name: number}` at a step."""
        for name, value in values.items():
            self._write(step, name, _field(4, _FLOAT, struct.pack("<f", value)))

    def histogram(self, step, name, values):
        """Writes the distribution of the numbers that are finite."""
        values = np.asarray(values, np.float64)
        finite = values[np.isfinite(values)]
        if finite.size < values.size:
            logging.warning(
                "%s at step %d: %d of %d values are no finite numbers.",
                name,
                step,
                values.size - finite.size,
                values.size,
            )
        if not finite.size:
            return
        counts, edges = np.histogram(finite, BINS)
        packed = [
            _field(number, _BYTES, np.asarray(column, "<f8").tobytes())
            for number, column in ((1, counts), (2, edges))
        ]
        self._write(step, name, _field(8, _BYTES, b"".join(packed)))

    def images(self, step, name, pictures):
        """Writes pictures, uint8 `[N, height, width, 3]`, each under its number."""
        for number, picture in enumerate(pictures):
            buffer = io.BytesIO()
            Image.fromarray(picture).save(buffer, "PNG")
            image = _field(4, _BYTES, buffer.getvalue())
            self._write(step, f"{name}/{number}", _field(5, _BYTES, image))

    def flush(self):
        """Nothing: every record is in the file at once."""

    def close(self):
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, step, tag, content):
        if self._file is None:
            return
        value = (
            _field(1, _VARINT, _varint(step))
            + _field(2, _BYTES, tag.encode())
            + _field(3, _VARINT, _varint(int(time.time() * 1000)))
            + content
        )
        record = _field(1, _BYTES, value)
        try:
            self._file.write(struct.pack("<Q", len(record)) + record)
            self._file.flush()
        except OSError:
            self._file = None  # half a record ends the log
            raise


def _field(number, kind, content):
    """A field of a protocol buffer; `content` as bytes."""
    size = _varint(len(content)) if kind == _BYTES else b""
    return _varint(number << 3 | kind) + size + content


def _varint(number):
    """Seven bits per byte, the lowest first; all but the last have the eighth set."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(data, start):
    """(number, place behind it)."""
    number, shift = 0, 0
    while True:
        byte = data[start]
        number |= (byte & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if byte < 0x80:
            return number, start


def _length_until(data, step):
    """Bytes of the whole records that are not later than a step.

    What cannot be read, such as the zeros that a loss of power leaves, ends the log.
    """
    start = 0
    while start + 8 <= len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        end = start + 8 + size
        if not size or end > len(data):
            break
        try:
            later = _step_of(data[start + 8 : end]) > step
        except IndexError:
            break
        if later:
            break
        start = end
    return start


def _step_of(record):
    """The step of a record's value; fields of 0 are left out by protocol buffers."""
    _, start = _read_varint(record, 0)
    _, start = _read_varint(record, start)
    key, start = _read_varint(record, start)
    return _read_varint(record, start)[0] if key == 1 << 3 | _VARINT else 0
