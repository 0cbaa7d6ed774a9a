"""TFRecord files with FastNN's keys: image/encoded, image/format, image/class/label."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from plsc_tf.data.source import StreamSource, on_host

# A record is: length (8 bytes, little endian), checksum (4), data, checksum (4).
_HEADER, _FOOTER = 12, 4


def tfrecords(
    files: Sequence[str],
    *,
    name: str = "tfrecords",
    num_classes: int | None = None,
    labels_offset: int = 0,
    parse_fn: Callable | None = None,
) -> StreamSource:
    """Reads TFRecord files; records are counted by walking their headers.

    Args:
        files: paths of the files.
        name: for messages.
        num_classes: number of classes, None when it is not known.
        labels_offset: subtracted from each label.
        parse_fn: maps a record, a string scalar, to (image, label); None reads
            FastNN's keys.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: no files, no records, or a file that is cut off.
    """
    files = list(files)
    if not files:
        raise ValueError(
            f"{name} needs at least one TFRecord file. Received: train_files=()."
        )
    sizes = [count_records(file) for file in files]
    if not sum(sizes):
        raise ValueError(
            f"{name} holds no records: {', '.join(files[:3])}. Write the files again."
        )
    firsts = np.cumsum([0, *sizes])
    names = on_host(np.array(files, object))
    parse_record = parse_fn or parse

    def open_part(part):
        return tf.data.TFRecordDataset(tf.gather(names, part))

    def read(record):
        image, label = parse_record(record)
        return image, tf.cast(label, tf.int64) - labels_offset

    def describe(index: int) -> str:
        part = int(np.searchsorted(firsts, index, side="right")) - 1
        return f"record {index - firsts[part]} of {files[part]}"

    return StreamSource(
        name, sizes, open_part, read, num_classes=num_classes, describe=describe
    )


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the encoded image, a string scalar, and the label of a record."""
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    return features["image/encoded"], features["image/class/label"]


def count_records(path: str) -> int:
    """Counts the records of a TFRecord file without reading their data.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file ends within a record.
    """
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(
            f"There is no TFRecord file {path!r}. Check train_files and dataset_dir."
        )
    size = tf.io.gfile.stat(path).length
    local = "://" not in path
    # Unbuffered, because a buffer would read all the data between two headers.
    opened = open(path, "rb", buffering=0) if local else tf.io.gfile.GFile(path, "rb")
    count, position = 0, 0
    with opened as stream:
        while position < size:
            stream.seek(position)
            header = stream.read(_HEADER)
            if len(header) == _HEADER:
                position += _HEADER + struct.unpack("<Q", header[:8])[0] + _FOOTER
            if len(header) < _HEADER or position > size:
                raise ValueError(
                    f"{path} is cut off or is no TFRecord file (compressed ones are "
                    f"not read): record {count} ends after the file, which has "
                    f"{size} bytes. Copy or write the file again."
                )
            count += 1
    return count
