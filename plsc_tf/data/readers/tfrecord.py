"""TFRecord files with FastNN's keys: image/encoded, image/format, image/class/label."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from plsc_tf.data.readers.packed import packed_source
from plsc_tf.data.records import tfrecord
from plsc_tf.data.records.packed_files import find_packed
from plsc_tf.data.source import IndexedSource


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
        num_classes: number of classes, None if unknown.
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
    packed, labels = find_packed(files, tfrecord.find_records, tfrecord.FOOTER)
    if not len(packed):
        raise ValueError(
            f"{name} holds no records: {', '.join(files[:3])}. Write the files again."
        )

    def describe(number: int) -> str:
        file, record = packed.place(number)
        return f"record {record} of {file}"

    def unpack(record: bytes, number: int) -> tuple[bytes, int]:
        if not tfrecord.is_intact(record):
            raise ValueError(
                f"{describe(number)} is damaged: its checksum does not fit its data."
            )
        data = record[: -tfrecord.FOOTER]
        if parse_fn is not None:
            return data, 0
        try:
            image, label = tfrecord.parse_example(data)
        except ValueError as error:
            raise ValueError(f"{describe(number)}: {error}") from error
        return image, label - labels_offset

    parse = None
    if parse_fn is not None:
        labels, parse = None, _for_blocks(parse_fn, labels_offset, name)
    return packed_source(
        name,
        packed,
        unpack,
        parse=parse,
        labels=None if labels is None else labels - labels_offset,
        num_classes=num_classes,
        describe=describe,
    )


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
