"""Reads and writes TFRecord files of FastNN's examples.

A record is: length (8 bytes, little endian), its checksum (4), data, its checksum (4).
An example is a `tf.train.Example` with image/encoded, image/format and
image/class/label. TensorFlow's own parser for examples is not used because it aborts
the process if a value declares a length of 2 GiB or more (2.17.1).
"""

import struct
from collections.abc import Callable, Iterator, Sequence

import google_crc32c
import tensorflow as tf
from google.protobuf.message import DecodeError

from plsc_tf.data.protobuf import has_few_fields
from plsc_tf.data.readers.packed import RandomAccessFile, find_packed, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require
from plsc_tf.storage import files

HEADER, FOOTER = 12, 4
_LENGTH_AND_CHECKSUM = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
# Most bytes of a record: an uncompressed image of 16 megapixels takes 48 MB.
_LONGEST = 3 << 24
# Most features and values of an example, if it has more bytes than the second number.
_MOST_FIELDS, _SHORT = 10_000, 1 << 20
_IMAGE, _FORMAT, _LABEL = "image/encoded", "image/format", "image/class/label"


def tfrecords(
    files: Sequence[str],
    *,
    name: str = "tfrecords",
    parse_fn: Callable | None = None,
    **numbers: int | None,
) -> IndexedSource:
    """Opens TFRecord files for random access; locates records by reading the headers.

    Args:
        files: paths of the files.
        name: name for messages.
        parse_fn: function that maps a record, a string scalar, to (image, label). It
            may have branches and loops (AutoGraph). None reads FastNN's keys.
        **numbers: num_classes and labels_offset of `packed_source`.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: there are no files or no records, a file is truncated, or parse_fn
            does not return (image, label).
    """
    packed, labels = find_packed(name, list(files), find_records, 2, FOOTER)
    if parse_fn is not None:
        parse = _for_blocks(parse_fn)
        return packed_source(name, packed, payload_of, parse=parse, **numbers)
    # The index may be out of date: its file may have been corrected, then copied.
    known = {"labels": labels, "labeled": True, **numbers}
    return packed_source(name, packed, lambda x: parse_example(payload_of(x)), **known)


def _for_blocks(parse_fn):
    """Turns a parse_fn for one record into a function of records `[block]`."""
    # Trace it here, with AutoGraph, because a user's function may branch on the
    # record's values; the pipeline's own functions disable AutoGraph.
    function = tf.function(parse_fn, autograph=True)
    graph = function.get_concrete_function(tf.TensorSpec([], tf.string))
    image, label = _checked_pair(graph.structured_outputs)
    spec, rank = tf.TensorSpec([], tf.string), image.shape.rank
    if rank:  # Pixels of different sizes.
        spec = tf.RaggedTensorSpec([None] * rank, image.dtype, rank - 1)

    def parse_one(record):
        image, label = graph(record)
        if rank:
            image = tf.RaggedTensor.from_tensor(image, ragged_rank=rank - 1)
        return image, label

    signature = (spec, tf.TensorSpec([], label.dtype))

    def parse_all(records):
        images, labels = tf.map_fn(parse_one, records, fn_output_signature=signature)
        return images, tf.cast(labels, tf.int64)

    return parse_all


def _checked_pair(returned):
    """Returns a parse_fn's result if it is (image, label).

    Raises:
        ValueError: the result is not (image, label).
    """
    good = isinstance(returned, tuple | list) and len(returned) == 2
    if good := good and all(map(tf.is_tensor, returned)):
        image, label = returned
        encoded = image.dtype == tf.string and image.shape.rank == 0
        pixels = image.dtype == tf.uint8 and image.shape.rank in (2, 3)
        good = (encoded or pixels) and label.dtype.is_integer and label.shape.rank == 0
    rule = "parse_fn must return (image, label): encoded bytes or uint8 pixels [h, w, "
    require(good, f"{rule}channels], and a whole number", returned=returned)
    return returned


class _ReadAhead(RandomAccessFile):
    """A file that is read from front to back, in large pieces."""

    _begin, _piece = 0, b""

    def read(self, position, length):
        """See `RandomAccessFile.read`."""
        start = position - self._begin
        if start + length > len(self._piece):
            self._piece = super().read(position, max(length, files.CHUNK_BYTES))
            self._begin, start = position, 0
        return self._piece[start : start + length]


def read_records(
    path: str, position: int = 0, number: int = 0
) -> Iterator[tuple[int, int, bytes]]:
    """Yields (number, position of the next record, record) for each record.

    A record begins with its length. Of its checksums, only that of the length is
    verified; see `unpack`.

    Args:
        path: path of the file, on any store.
        position: position of the first record to read.
        number: number of that record, from 0.

    Raises:
        ValueError: the file ends within a record, or a length is damaged.
    """
    file = _ReadAhead(path)
    for count, (begin, length) in enumerate(_places(file, position, number), number):
        end = begin + length + FOOTER
        yield count, end, file.read(begin - HEADER, end - begin + HEADER)


def find_records(path: str) -> Iterator[tuple[int, int]]:
    """Yields the position and the length of the data of each record.

    Does not read the data. Raises the errors of `read_records`.
    """
    return _places(RandomAccessFile(path))


def _places(file, position=0, number=0):
    """Yields (position, length) of the data of each record; see `read_records`."""
    while position < file.size:
        header, end = file.read(position, HEADER), file.size + 1
        if len(header) == HEADER:
            length, checksum = _LENGTH_AND_CHECKSUM.unpack(header)
            if masked_checksum(header[:8]) != checksum:
                raise ValueError(
                    f"{file.path} is damaged at record {number}, byte {position}, or "
                    "is not a TFRecord file: the checksum of the record's length is "
                    "wrong. Copy or write it again."
                )
            end = position + HEADER + length + FOOTER
        if end > file.size:
            raise ValueError(
                f"{file.path} is cut off: record {number} at byte {position} ends "
                f"beyond the file's end, byte {file.size}. Copy or write it again."
            )
        rule = f"{file.path}, record {number}, must have at most {_LONGEST:,} bytes"
        require(length <= _LONGEST, rule, bytes=f"{length:,}")
        yield position + HEADER, length
        position, number = end, number + 1


def payload_of(record: bytes) -> bytes:
    """Returns the data of a record, which may lack its length.

    Raises:
        ValueError: the data does not match the checksum that follows it.
    """
    (checksum,) = _CHECKSUM.unpack(record[-FOOTER:])
    payload = record[:-FOOTER]
    rule = "it is damaged: its checksum does not match its data"
    require(masked_checksum(payload) == checksum, rule, "Copy or write the file again")
    return payload


def masked_checksum(data: bytes) -> int:
    """Returns the CRC-32C of bytes, masked as in a TFRecord file."""
    value = google_crc32c.value(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """Returns a record: the payload with its length and checksums."""
    length = struct.pack("<Q", len(payload))
    sums = masked_checksum(length), masked_checksum(payload)
    opening, closing = map(_CHECKSUM.pack, sums)
    return b"".join((length, opening, payload, closing))


def encode_example(image: bytes, image_format: bytes, label: int) -> bytes:
    """Returns a `tf.train.Example` with FastNN's three keys.

    Args:
        image: an encoded image.
        image_format: format of the image, such as b"jpeg".
        label: the label.
    """
    example = tf.train.Example()
    feature = example.features.feature
    feature[_IMAGE].bytes_list.value.append(image)
    feature[_FORMAT].bytes_list.value.append(image_format)
    feature[_LABEL].int64_list.value.append(label)
    return example.SerializeToString(deterministic=True)


def parse_example(payload: bytes) -> tuple[bytes, int]:
    """Returns (encoded image, label) from a serialized `tf.train.Example`.

    Raises:
        ValueError: the payload is not a `tf.train.Example`, or does not have exactly
            one image/encoded and one image/class/label.
    """
    feature = _example(payload).features.feature
    # Looking up a missing key creates an empty feature.
    image = feature[_IMAGE].bytes_list.value
    label = feature[_LABEL].int64_list.value
    if len(image) != 1 or len(label) != 1:
        keys = ", ".join(sorted(k for k in feature if feature[k].WhichOneof("kind")))
        raise ValueError(
            "expected one image/encoded (bytes) and one image/class/label (int64). "
            f"Received the keys: {keys or 'none':.300}."
        )
    return image[0], label[0]


def unpack(record: bytes) -> tuple[bytes, int]:
    """Returns (encoded image, label) of a record.

    Raises:
        ValueError: the record is damaged, or see `parse_example`.
    """
    return parse_example(payload_of(record[HEADER:]))


def with_label(record: bytes, label: int) -> bytes:
    """Returns the record with a different label, and all else as it was."""
    example = _example(record[HEADER:-FOOTER])
    example.features.feature[_LABEL].int64_list.value[:] = [label]
    return frame(example.SerializeToString(deterministic=True))


def _example(payload):
    kind = tf.train.Example
    try:
        few = len(payload) <= _SHORT
        few = few or has_few_fields(payload, kind.DESCRIPTOR, _MOST_FIELDS)
        require(few, f"it has more than {_MOST_FIELDS:,} features and values")
        return kind.FromString(payload)
    except (DecodeError, IndexError) as error:  # They are not ValueErrors.
        raise ValueError(f"it is not a tf.train.Example: {error}.") from error
