"""TFRecord files and FastNN's examples as bytes: framing, parsing, writing.

A record is: length (8 bytes, little endian), its checksum (4), data, its checksum (4).
An example is a `tf.train.Example` with image/encoded, image/format and
image/class/label. TensorFlow's own parser of examples is not used: it ends the process
if a value declares a length of 2 GiB or more (2.17.1).
"""

from __future__ import annotations

import array
import dataclasses
import struct
from collections.abc import Iterator

import google_crc32c
import tensorflow as tf
from google.protobuf.message import DecodeError

from plsc_tf.data.records.packed_files import RandomAccessFile
from plsc_tf.storage import files

HEADER, FOOTER = 12, 4
_LENGTH_AND_CHECKSUM = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_IMAGE, _FORMAT, _LABEL = "image/encoded", "image/format", "image/class/label"


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Whole records of a file.

    Attributes:
        frames: each record with its length and checksums.
        payloads: each record's data.
        offset: of the end of the records in the file.
    """

    frames: list[memoryview]
    payloads: list[bytes]
    offset: int


def read_blocks(
    path: str, block_bytes: int, offset: int = 0, number: int = 0
) -> Iterator[Block]:
    """Yields the records of a file in blocks; all checksums are checked.

    Args:
        path: on any store.
        block_bytes: about how many to read at a time.
        offset: where a record starts.
        number: of that record, from 0, for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file ends within a record, or a record is damaged.
    """
    size = files.size(path)
    while offset < size:
        data = files.read(path, offset, min(offset + block_bytes, size))
        whole = offset + len(data) == size
        view, frames, payloads, at = memoryview(data), [], [], 0
        while at < len(data):
            header = data[at : at + HEADER]
            end = at + HEADER
            if whole or len(header) == HEADER:
                place = offset + at
                end += FOOTER + payload_length(header, path, number, place, size)
            if end > len(data):
                block_bytes = max(block_bytes, end - at)
                break
            if not is_intact(data[at + HEADER : end]):
                raise _damaged(path, number, offset + at, "data")
            frames.append(view[at:end])
            payloads.append(data[at + HEADER : end - FOOTER])
            at, number = end, number + 1
        if frames:
            offset += at
            yield Block(frames, payloads, offset)


def find_records(path: str) -> tuple[array.array, array.array]:
    """Finds the records of a file without reading their data.

    Returns:
        first byte and number of bytes of each record's data.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file ends within a record, or a length is damaged.
    """
    file = RandomAccessFile(path)
    begins, lengths, position = array.array("q"), array.array("q"), 0
    while position < file.size:
        header = file.read(position, HEADER)
        length = payload_length(header, path, len(begins), position, file.size)
        begins.append(position + HEADER)
        lengths.append(length)
        position += HEADER + length + FOOTER
    return begins, lengths


def payload_length(
    header: bytes, path: str, number: int, position: int, size: int
) -> int:
    """Returns the bytes of a record's data.

    Args:
        header: of the record.
        path: of the file, for errors.
        number: of the record.
        position: of the record in the file.
        size: bytes of the file.

    Raises:
        ValueError: the length is damaged, or the record ends after the file.
    """
    length = 0
    if len(header) == HEADER:
        length, checksum = _LENGTH_AND_CHECKSUM.unpack(header)
        if masked_checksum(header[:8]) != checksum:
            raise _damaged(path, number, position, "length")
    if len(header) < HEADER or position + HEADER + length + FOOTER > size:
        raise ValueError(
            f"{path} is cut off: record {number} at byte {position} ends after the "
            f"file, which has {size} bytes. Copy or write the file again."
        )
    return length


def is_intact(record: bytes) -> bool:
    """Whether data and the checksum that follows it fit."""
    (checksum,) = _CHECKSUM.unpack(record[-FOOTER:])
    return masked_checksum(record[:-FOOTER]) == checksum


def masked_checksum(data: bytes) -> int:
    """The CRC-32C of bytes as TFRecord stores it."""
    value = google_crc32c.value(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """Returns a record: the data with its length and checksums."""
    length = struct.pack("<Q", len(payload))
    sums = masked_checksum(length), masked_checksum(payload)
    opening, closing = map(_CHECKSUM.pack, sums)
    return b"".join((length, opening, payload, closing))


def encode_example(image: bytes, image_format: bytes, label: int) -> bytes:
    """Returns a `tf.train.Example` with FastNN's three keys.

    Args:
        image: an encoded image.
        image_format: such as b"jpeg".
        label: int64.
    """
    example = tf.train.Example()
    feature = example.features.feature
    feature[_IMAGE].bytes_list.value.append(image)
    feature[_FORMAT].bytes_list.value.append(image_format)
    feature[_LABEL].int64_list.value.append(label)
    return example.SerializeToString(deterministic=True)


def parse_example(payload: bytes) -> tuple[bytes, int]:
    """Returns (encoded image, label) of a `tf.train.Example`.

    Raises:
        ValueError: it is none, or has no image/encoded or image/class/label.
    """
    feature = _example(payload).features.feature
    # Looking up a missing key creates it, empty.
    image = feature[_IMAGE].bytes_list.value
    label = feature[_LABEL].int64_list.value
    if len(image) != 1 or len(label) != 1:
        keys = ", ".join(sorted(k for k in feature if feature[k].WhichOneof("kind")))
        raise ValueError(
            "expected one image/encoded (bytes) and one image/class/label (int64). "
            f"Received the keys: {keys or 'none'}."
        )
    return image[0], label[0]


def with_label(payload: bytes, label: int) -> bytes:
    """Returns the example with another label."""
    example = _example(payload)
    example.features.feature[_LABEL].int64_list.value[:] = [label]
    return example.SerializeToString(deterministic=True)


def _example(payload):
    try:
        return tf.train.Example.FromString(payload)
    except DecodeError as error:  # no ValueError
        raise ValueError(f"it is no tf.train.Example: {error}.") from error


def _damaged(path, number, offset, part):
    return ValueError(
        f"{path} is damaged at record {number}, byte {offset}, or is no TFRecord file "
        f"(compressed ones are not read): the checksum of the record's {part} does not "
        "fit. Copy or write the file again."
    )
