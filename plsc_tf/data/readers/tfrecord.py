"""TFRecord files with FastNN's keys: image/encoded, image/format, image/class/label."""

from __future__ import annotations

import array
import mmap
from collections.abc import Callable, Sequence

import tensorflow as tf

from plsc_tf.data.readers.packed import packed_source
from plsc_tf.data.records.packed_files import IndexBuilder, PackedFiles, read_index
from plsc_tf.data.records.quick_example import image_and_label
from plsc_tf.data.records.tfrecord import (
    CHECKSUM,
    FOOTER,
    HEADER,
    LENGTH_AND_CHECKSUM,
    masked_checksum,
)
from plsc_tf.data.source import IndexedSource
from plsc_tf.storage import files


def tfrecords(
    files: Sequence[str],
    *,
    name: str = "tfrecords",
    num_classes: int | None = None,
    labels_offset: int = 0,
    parse_fn: Callable | None = None,
) -> IndexedSource:
    """Reads TFRecord files in any order; their records are found by their headers.

    Args:
        files: paths of the files.
        name: for messages.
        num_classes: number of classes, None when it is not known.
        labels_offset: subtracted from each label.
        parse_fn: maps a record, a string scalar, to (image, label), branches and loops
            included (AutoGraph); None reads FastNN's keys.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: no files, no records, a file that is cut off, or a parse_fn that
            fails or returns something else.
    """
    files = list(files)
    if not files:
        raise ValueError(
            f"{name} needs at least one TFRecord file. Received: train_files=()."
        )
    builder = IndexBuilder()
    for file in files:
        builder.add(file, *(read_index(file) or find_records(file)))
    index = builder.done()
    if not len(index):
        raise ValueError(
            f"{name} holds no records: {', '.join(files[:3])}. Write the files again."
        )

    def describe(number: int) -> str:
        file, record = index.place(number)
        return f"record {record} of {files[file]}"

    labels = None if builder.labels is None else builder.labels - labels_offset

    def checked(record: bytes, number: int) -> bytes:
        data = record[:-FOOTER]
        if masked_checksum(data) != CHECKSUM.unpack(record[-FOOTER:])[0]:
            raise ValueError(
                f"{describe(number)} is damaged: its checksum does not fit its data."
            )
        return data

    def unpack(record: bytes, number: int):
        try:
            image, label = image_and_label(checked(record, number))
        except ValueError as error:
            raise ValueError(f"{describe(number)}: {error}") from error
        return (image, label - labels_offset) if labels is None else image

    return packed_source(
        name,
        PackedFiles(index, after=FOOTER),
        unpack if parse_fn is None else checked,
        parse=None if parse_fn is None else _for_blocks(parse_fn, labels_offset, name),
        labels=labels if parse_fn is None else None,
        num_classes=num_classes,
        describe=describe,
    )


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the encoded image and the label of a record, or of records [n]."""
    features = tf.io.parse_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    return features["image/encoded"], features["image/class/label"]


def find_records(path: str) -> tuple[array.array, array.array]:
    """Finds the records of a TFRecord file without reading their data.

    Returns:
        first byte and number of bytes of each record's data.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file ends within a record, or a length is damaged.
    """
    if not files.exists(path):
        raise FileNotFoundError(
            f"There is no TFRecord file {path!r}. Check train_files and dataset_dir."
        )
    size = files.size(path)
    begins, lengths = array.array("q"), array.array("q")
    if not size:
        return begins, lengths
    if "://" in path:
        stream = files.open_random(path)
        _walk(path, size, lambda at: stream.read(at, HEADER), begins, lengths)
    else:
        # Mapped, because a buffer would read all the data between two headers.
        with (
            open(path, "rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            headers = lambda position: mapped[position : position + HEADER]  # noqa: E731
            _walk(path, size, headers, begins, lengths)
    return begins, lengths


def _walk(path, size, header_at, begins, lengths):
    position = 0
    while position < size:
        header = header_at(position)
        end = position
        if len(header) == HEADER:
            length, checksum = LENGTH_AND_CHECKSUM.unpack(header)
            if masked_checksum(header[:8]) != checksum:
                raise ValueError(
                    f"{path} is damaged at record {len(begins)}, byte {position}, or "
                    "is no TFRecord file (compressed ones are not read): the checksum "
                    "of the record's length does not fit. Copy or write it again."
                )
            end = position + HEADER + length + FOOTER
        if len(header) < HEADER or end > size:
            raise ValueError(
                f"{path} is cut off: record {len(begins)} at byte {position} ends "
                f"after the file, which has {size} bytes. Copy or write it again."
            )
        begins.append(position + HEADER)
        lengths.append(length)
        position = end


def _traced(parse_fn, name):
    """A parse_fn as a graph of one record, and the (image, label) that it returns."""
    # With AutoGraph: a user's function may branch on what a record holds.
    function = tf.function(parse_fn, autograph=True)
    try:
        traced = function.get_concrete_function(tf.TensorSpec([], tf.string))
    except Exception as error:
        hint = ""
        if isinstance(error, AttributeError):
            hint = (
                " TF 1's tf.parse_single_example and tf.FixedLenFeature are "
                "tf.io.parse_single_example and tf.io.FixedLenFeature."
            )
        raise ValueError(
            f"parse_fn of {name} failed: {type(error).__name__}: {error}{hint}"
        ) from error
    return traced, _checked_pair(traced.structured_outputs)


def _checked_pair(found):
    """(image, label) that a parse_fn returns; raises ValueError of anything else."""
    pair = isinstance(found, tuple | list) and len(found) == 2
    if not (pair and all(tf.is_tensor(one) for one in found)):
        problem = f"{found!r}"
    else:
        image, label = found
        encoded = image.dtype == tf.string and image.shape.rank == 0
        pixels = image.dtype == tf.uint8 and image.shape.rank in (2, 3)
        if (encoded or pixels) and label.dtype.is_integer and label.shape.rank == 0:
            return image, label
        problem = f"image {image.dtype.name} {image.shape}, "
        problem += f"label {label.dtype.name} {label.shape}"
    raise ValueError(
        "parse_fn must return (image, label): encoded bytes or uint8 pixels [h, w, "
        f"channels], and a whole number. Received: {problem}."
    )


def _for_blocks(parse_fn, labels_offset, name):
    """A function of records [block] made of one of a single record."""
    traced, (image, label) = _traced(parse_fn, name)
    spec, rank = tf.TensorSpec(image.shape, image.dtype), image.shape.rank
    sizes_differ = rank and not image.shape.is_fully_defined()
    if sizes_differ:
        spec = tf.RaggedTensorSpec([None] * rank, image.dtype, rank - 1)

    def parse_one(record):
        # The graph, and not the function: AutoGraph is switched off where it is used.
        image, label = traced(record)
        if sizes_differ:
            image = tf.RaggedTensor.from_tensor(image, ragged_rank=rank - 1)
        return image, label

    signature = (spec, tf.TensorSpec([], label.dtype))

    def parse_all(records):
        images, labels = tf.map_fn(parse_one, records, fn_output_signature=signature)
        return images, tf.cast(labels, tf.int64) - labels_offset

    return parse_all
