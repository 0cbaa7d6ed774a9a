"""TFRecord files and FastNN's examples as bytes: framing, parsing, writing.

A record is: length (8 bytes, little endian), its checksum (4), data, its checksum (4).
An example is a `tf.train.Example` with image/encoded, image/format and
image/class/label.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from plsc_tf.storage import files

HEADER, FOOTER = 12, 4
_IMAGE, _FORMAT, _LABEL = "image/encoded", "image/format", "image/class/label"
# Records that are checked or framed in one call of TensorFlow.
_AT_ONCE = 256
_MAX_RECORD_BYTES = 1 << 30
# Tags of protobuf: field number * 8 + 2, for a length and so many bytes.
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Whole records of a file.

    Attributes:
        data: the bytes that were read.
        starts: where each record's frame begins in `data`.
        lengths: bytes of each record's data.
        offset: of the end of the records in the file.
    """

    data: memoryview
    starts: list[int]
    lengths: list[int]
    offset: int

    def frame(self, row: int) -> memoryview:
        """A record with its length and checksums."""
        start = self.starts[row]
        return self.data[start : start + self.lengths[row] + HEADER + FOOTER]

    def payload(self, row: int) -> memoryview:
        """The data of a record."""
        start = self.starts[row] + HEADER
        return self.data[start : start + self.lengths[row]]


def read_blocks(
    path: str, block_bytes: int, offset: int = 0, number: int = 0
) -> Iterator[Block]:
    """Yields the records of a file in blocks; `verify` checks their checksums.

    Args:
        path: whatever tf.io.gfile reads.
        block_bytes: about what is read at a time.
        offset: where a record starts.
        number: of that record, from 0, for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file ends within a record.
    """
    size = files.size(path)
    while offset < size:
        stop = min(offset + block_bytes, size)
        data = _read(path, offset, stop)
        starts, lengths, at = [], [], 0
        while at + HEADER <= len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            end = at + HEADER + length + FOOTER
            if end > len(data):
                break
            starts.append(at)
            lengths.append(length)
            at = end
        if not starts:
            block_bytes = max(block_bytes, _needed(path, data, offset, size, number))
            if stop == min(offset + block_bytes, size):
                raise _cut_off(path, size, number)
            continue
        offset, number = offset + at, number + len(starts)
        yield Block(data, starts, lengths, offset)


def verify(path: str, stopped: threading.Event | None = None) -> int:
    """Checks all checksums of a file, in C++ and without the interpreter's lock.

    Args:
        path: whatever tf.io.gfile reads.
        stopped: ends it early once it is set.

    Returns:
        the number of records.

    Raises:
        ValueError: the file is damaged; which record is.
    """
    batches = tf.data.TFRecordDataset(path, buffer_size=1 << 20).batch(_AT_ONCE)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    count = 0
    try:
        for batch in batches.map(tf.size).with_options(options):
            if stopped is not None and stopped.is_set():
                break
            count += int(batch)
    except tf.errors.OpError as error:
        words = str(error.message).partition("[[")[0].strip(" {}")
        raise ValueError(
            f"{path} is damaged at or after record {count}: {words}. Copy or write "
            "the file again."
        ) from error
    return count


def encode_example(image: bytes, image_format: bytes, label: int) -> bytes:
    """Returns a `tf.train.Example` with FastNN's three keys, as protobuf writes it.

    By hand it takes a third of protobuf's time.

    Args:
        image: an encoded image.
        image_format: such as b"jpeg".
        label: int64.
    """
    size = len(image)
    opening = _opening(_FIELD_1, size)
    opening = _opening(_FIELD_1, size + len(opening)) + opening
    opening = _opening(_FIELD_2, size + len(opening)) + opening
    opening = _field(_FIELD_1, _IMAGE.encode()) + opening
    opening = _opening(_FIELD_1, size + len(opening)) + opening
    label_entry, format_entry = _label_entry(label), _format_entry(image_format)
    size += len(label_entry) + len(opening) + len(format_entry)
    return b"".join(
        (_opening(_FIELD_1, size), label_entry, opening, image, format_entry)
    )


def parse_example(payload: bytes | memoryview) -> tuple[bytes, int]:
    """Returns (encoded image, label) of a `tf.train.Example`.

    Raises:
        ValueError: it is none, or has no image/encoded or image/class/label.
    """
    feature = _example(payload).features.feature
    # Asking for a key that is missing makes it, empty.
    image = feature[_IMAGE].bytes_list.value
    label = feature[_LABEL].int64_list.value
    if len(image) != 1 or len(label) != 1:
        keys = ", ".join(sorted(k for k in feature if feature[k].WhichOneof("kind")))
        raise ValueError(
            "expected one image/encoded (bytes) and one image/class/label (int64). "
            f"Received the keys: {keys or 'none'}."
        )
    return image[0], label[0]


def with_label(payload: bytes | memoryview, label: int) -> bytes:
    """Returns the example with another label, and all else as it was."""
    example = _example(payload)
    example.features.feature[_LABEL].int64_list.value[:] = [label]
    return example.SerializeToString(deterministic=True)


class Framer:
    """Makes TFRecord frames of payloads, by TensorFlow's writer, for its checksums."""

    def __init__(self):
        if hasattr(os, "memfd_create"):
            self._file = os.fdopen(os.memfd_create("frames"), "r+b", buffering=0)
            self._path = f"/proc/self/fd/{self._file.fileno()}"
        else:
            self._file = tempfile.NamedTemporaryFile(buffering=0)  # noqa: SIM115
            self._path = self._file.name

    def frames(self, payloads: Sequence[bytes]) -> list[memoryview]:
        """Returns the frame of each payload."""
        with tf.io.TFRecordWriter(self._path) as writer:
            for payload in payloads:
                writer.write(payload)
        lengths = [len(payload) + HEADER + FOOTER for payload in payloads]
        ends = np.cumsum(lengths).tolist()
        data = bytearray(ends[-1] if ends else 0)
        self._file.seek(0)
        if self._file.readinto(data) != len(data):
            raise OSError("TensorFlow's TFRecordWriter wrote another number of bytes.")
        view = memoryview(data)
        return [view[end - size : end] for end, size in zip(ends, lengths, strict=True)]

    def close(self) -> None:
        """Frees the memory."""
        self._file.close()


def _example(payload):
    # protobuf's DecodeError is no ValueError.
    from google.protobuf.message import DecodeError

    try:
        return tf.train.Example.FromString(bytes(payload))
    except DecodeError as error:
        raise ValueError(f"it is no tf.train.Example: {error}.") from error


@functools.lru_cache(maxsize=1 << 12)
def _label_entry(label):
    number = _field(_FIELD_1, _varint(label & (1 << 64) - 1))
    return _entry(_LABEL, _field(_FIELD_3, number))


@functools.lru_cache(maxsize=64)
def _format_entry(image_format):
    return _entry(_FORMAT, _field(_FIELD_1, _field(_FIELD_1, image_format)))


def _entry(key, feature):
    """An entry of the map from keys to features."""
    both = _field(_FIELD_1, key.encode()) + _field(_FIELD_2, feature)
    return _field(_FIELD_1, both)


def _field(tag, content):
    return _opening(tag, len(content)) + content


def _opening(tag, length):
    return bytes((tag,)) + _varint(length)


def _varint(number):
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read(path, start, stop):
    data = b"".join(files.open_read(path, max(stop - start, 1), start, stop))
    return memoryview(data)


def _needed(path, data, offset, size, number):
    """Bytes of the record at the beginning of `data`, as far as the file has them."""
    if len(data) < HEADER:
        raise _cut_off(path, size, number)
    needed = HEADER + struct.unpack("<Q", data[:8])[0] + FOOTER
    if offset + needed > size or needed > _MAX_RECORD_BYTES:
        raise _cut_off(path, size, number)
    return needed


def _cut_off(path, size, number):
    return ValueError(
        f"{path} is cut off or is no TFRecord file (compressed ones are not read): "
        f"record {number} ends after the file, which has {size} bytes. Copy or write "
        "the file again."
    )
