"""Finds bad records and replaces them with good ones."""

import itertools
import re
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.sampling import Order
from plsc_tf.data.source import IndexedSource, Source, label_error, without_autograph
from plsc_tf.requirements import require

# Errors that TensorFlow raises for unreadable records. UnicodeDecodeError occurs when
# its message quotes bytes that are not UTF-8.
READ_ERRORS = (tf.errors.OpError, UnicodeDecodeError)
# Errors of the store or disk, such as a lost connection, that say nothing about the
# record. Inside tf.data, Python's OSErrors are unknown errors. TensorFlow's gs://
# aborts after its last attempt.
OUTAGES = (tf.errors.UnavailableError, tf.errors.UnknownError, tf.errors.AbortedError)
# At most this many bad records are logged.
_MOST_NAMED = 100


def first_fault(
    source: Source, order: Order, prepare: Callable, num_classes: int | None, count: int
) -> ValueError | None:
    """Searches for the example that made TensorFlow fail.

    Reads one example at a time, because an error from inside tf.data names an op, not
    a file.

    Args:
        source: provides the examples.
        order: order of the epoch and where to start.
        prepare: function that decodes a block of images from the source; raises
            TensorFlow's errors.
        num_classes: upper bound of the labels (exclusive); None if unknown.
        count: number of examples to check.

    Returns:
        An error that names the example and the remedy, or None if every example can be
        read.
    """
    number = 0
    try:
        for entry in itertools.islice(source.blocks(1, order), count):
            read_checked(source, entry, prepare, num_classes)
            number += 1
    except READ_ERRORS as error:
        position = order.start + number
        if order.part is not None:  # Streams are read a batch at a time.
            first = order.start + number // order.part.size * order.batch_size
            position = f"{first}...{first + order.batch_size - 1}"
        return ValueError(
            f"{source.name} cannot be read beyond position {position} of epoch "
            f"{order.epoch}: {reason(error)}"
        )
    except ValueError as error:
        return error
    return None


def read_checked(source, entry, prepare, num_classes) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the prepared image and the label from a block of one example.

    Raises:
        ValueError: the image cannot be read, or the label is out of range.
        tf.errors.OpError: one of `OUTAGES`.
    """
    where = source.describe(int(entry["index"][0]))
    try:
        item = source.read(entry)
        image = prepare(item["image"])[0]
    except OUTAGES as error:
        raise type(error)(None, None, f"{where}: {reason(error)}") from error
    except (tf.errors.OpError, ValueError) as error:
        text = reason(error).removeprefix(f"{where}: ")
        raise ValueError(
            f"The image cannot be read: {where}: {text} Expected a file, JPEG, PNG or "
            "GIF. Replace it, or set skip_bad_records."
        ) from error
    label = item["label"][0]
    if not 0 <= int(label) < (num_classes or 2**63):
        raise label_error(int(label), where, num_classes)
    return image, label


def checked_labels(labels: tf.Tensor, num_classes: int | None) -> tf.Tensor:
    """Returns the labels; fails in the graph if one of them is out of range."""
    good = tf.reduce_all((labels >= 0) & (labels < (num_classes or tf.int64.max)))
    check = tf.debugging.Assert(good, ["label out of range", labels])
    with tf.control_dependencies([check]):
        return tf.identity(labels)


def reason(error: Exception) -> str:
    """Returns TensorFlow's message as one sentence, without node and op names."""
    text = getattr(error, "message", None) or str(error)
    text = re.sub(r"\{\{[^{}]*\}\}|\[Op:[^][]*\]( name:)?", " ", text).strip()
    text = re.sub(r"^Error in user-defined function .*? with iterator: \S+: ", "", text)
    text = " ".join(text.split("\n")[0].split())
    return text if text.endswith(".") else text + "."


def without_bad_records(
    source: Source, prepare: Callable, size: tuple[int, int]
) -> IndexedSource:
    """Returns a source that replaces each bad record with the next good one.

    The replacement depends only on the data, so a resumed run sees the same examples.
    Each bad record is logged once, up to a limit. An error of the store ends the
    reading.

    Args:
        source: provides the examples.
        prepare: function that turns a block of images from the source into uint8
            `[block, height, width, 3]`; raises TensorFlow's errors.
        size: (height, width) of the prepared images.

    Returns:
        The new source. Its attribute `skipped` maps the index of each bad record read
        so far to a description of the problem.

    Raises:
        ValueError: the source is a stream, without random access.
    """
    rule = f"skip_bad_records needs random access, but {source.name} is a stream"
    advice = "Skip them in the function that yields them, or use plsc_tf.convert"
    require(isinstance(source, IndexedSource), rule, advice)
    skipped: dict[int, str] = {}
    # {bad record: the next good one, or one before it}. Going through many bad records
    # each time would take hours.
    later: dict[int, int] = {}

    def block(index):
        item = source.read({"index": index})
        return prepare(item["image"]), checked_labels(item["label"], source.num_classes)

    def good_from(index):
        passed = []
        while len(skipped) < source.num_examples:
            if index not in skipped:
                entry = {"index": tf.constant([index], tf.int64)}
                try:
                    found = read_checked(source, entry, prepare, source.num_classes)
                    later.update(dict.fromkeys(passed, index))
                    return found
                except ValueError as error:
                    text = str(error)
                # If several threads meet the same bad record, only one logs it.
                is_new = skipped.setdefault(index, text) is text
                if is_new and len(skipped) <= _MOST_NAMED:
                    logging.warning("Skipped a bad record. %s", text)
            passed.append(index)
            index = later.get(index, (index + 1) % source.num_examples)
        raise ValueError(f"{source.name} has no readable records.")

    def good_block(indices):
        images, labels = zip(*map(good_from, indices.tolist()), strict=True)
        return np.stack(images), np.array(labels)

    def fetch(index):
        count = tf.size(index, tf.int64)
        # Read through an inner dataset: in a graph, only tf.data can ignore errors.
        good = tf.data.Dataset.from_tensors(index)
        good = good.map(without_autograph(block)).ignore_errors(log_warning=False)
        nothing = (tf.zeros([0, *size, 3], tf.uint8), tf.zeros([0], tf.int64))
        first = good.concatenate(tf.data.Dataset.from_tensors(nothing))
        images, labels = first.take(1).get_single_element()
        types = tf.uint8, tf.int64
        images, labels = tf.cond(
            tf.equal(tf.size(labels, tf.int64), count),
            lambda: (images, labels),
            lambda: tuple(tf.numpy_function(good_block, [index], types, False)),
        )
        images = tf.ensure_shape(images, [None, *size, 3])
        return images, tf.ensure_shape(labels, [None])

    tolerant = source.with_fetch(fetch)
    tolerant.skipped = skipped
    return tolerant
