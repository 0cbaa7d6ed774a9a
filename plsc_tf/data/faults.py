"""Bad records: naming them, and replacing them by good ones."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.source import (
    IndexedSource,
    Order,
    Source,
    label_error,
    without_autograph,
)

# What TensorFlow raises where a record cannot be read; the second where its message
# quotes bytes that are no UTF-8.
READ_ERRORS = (tf.errors.OpError, UnicodeDecodeError)
# Bad records that are named; the others are counted.
_MOST_NAMED = 100


def first_fault(
    source: Source,
    order: Order,
    prepare: Callable,
    num_classes: int | None,
    count: int,
) -> ValueError | None:
    """Looks for the example that made TensorFlow fail.

    It reads one example at a time, because an error from inside tf.data names an op,
    not a file.

    Args:
        source: of the examples.
        order: of the epoch, and where to begin.
        prepare: function of what the source gives as an image; raises TensorFlow's
            errors.
        num_classes: that the labels must be below, None if unknown.
        count: examples to look at.

    Returns:
        An error that names the example and says what to do, or None when all of them
        can be read.
    """
    iterator = iter(source.blocks(1, order))
    for number in range(count):
        try:
            entry = next(iterator)
        except StopIteration:
            return None
        except READ_ERRORS as error:
            position = order.start + number
            if order.part is not None:  # a stream is read a batch at a time
                first = order.start + number // order.part.size * order.batch_size
                position = f"{first}...{first + order.batch_size - 1}"
            return ValueError(
                f"{source.name} cannot be read beyond position {position} of epoch "
                f"{order.epoch}: {reason(error)}"
            )
        if error := fault(source, entry, prepare, num_classes):
            return error
    return None


def fault(source, entry, prepare, num_classes) -> ValueError | None:
    """Returns what is wrong with a block of one example, or None."""
    where = source.describe(int(entry["index"][0]))
    try:
        item = source.read(entry)
        prepare(item["image"][0])
    except tf.errors.NotFoundError as error:
        return ValueError(
            f"There is no file for {where}: {reason(error)} "
            "Put the file there, or take it out of the list."
        )
    except (tf.errors.OpError, ValueError) as error:
        return ValueError(
            f"The image cannot be read: {where}: {reason(error)} "
            "Expected JPEG, PNG or GIF. Replace it or take it out, or leave such "
            "records out with skip_bad_records."
        )
    label = int(item["label"][0])
    if label < 0 or label >= (num_classes or 2**63):
        return label_error(label, where, num_classes)
    return None


def reason(error: Exception) -> str:
    """TensorFlow's message without the names of nodes and ops; one sentence."""
    text = getattr(error, "message", None) or str(error)
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:)?", " ", text).strip()
    text = re.sub(r"^Error in user-defined function .*? with iterator: \S+: ", "", text)
    text = " ".join(text.split("\n")[0].split())
    return text if text.endswith(".") else text + "."


def without_bad_records(
    source: Source, prepare: Callable, size: tuple[int, int]
) -> IndexedSource:
    """Returns a source whose bad records are replaced by the next good ones.

    The record at a position depends on the data alone, so that a resumed run sees the
    same examples. Each bad record is named once in the log.

    Args:
        source: of the examples.
        prepare: function of an image of the source that returns uint8
            [height, width, 3]; raises TensorFlow's errors.
        size: (height, width).

    Returns:
        the source, with `skipped`: `{index: problem}` of the bad records so far.

    Raises:
        ValueError: the source can only be read from the front.
    """
    if not isinstance(source, IndexedSource):
        raise ValueError(
            f"skip_bad_records cannot leave out examples of {source.name}, which "
            "can only be read from the front. Leave them out in its function, or "
            "make TFRecords of it: python -m plsc_tf.convert."
        )
    substitutes = _Substitutes(source, prepare, size)
    tolerant = source.with_fetch(substitutes.fetch)
    tolerant.skipped = substitutes.skipped
    return tolerant


class _Substitutes:
    """Reads the records of a source, good ones in place of bad ones."""

    def __init__(self, source, prepare, size):
        self.skipped = {}
        self._source = source
        self._prepare = prepare
        self._size = size
        self._lock = threading.Lock()

    def fetch(self, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns uint8 [block, height, width, 3] and int64 [block]."""
        count = tf.size(index, tf.int64)
        # An inner data set, because nothing else in a graph survives an error.
        good = tf.data.Dataset.from_tensor_slices(index)
        good = good.map(without_autograph(self._one)).ignore_errors(log_warning=False)
        nothing = (tf.zeros([0, *self._size, 3], tf.uint8), tf.zeros([0], tf.int64))
        first = good.batch(count).concatenate(tf.data.Dataset.from_tensors(nothing))
        images, labels = first.take(1).get_single_element()
        types = tf.uint8, tf.int64
        images, labels = tf.cond(
            tf.equal(tf.size(labels, tf.int64), count),
            lambda: (images, labels),
            lambda: tuple(tf.numpy_function(self._good_block, [index], types, False)),
        )
        images = tf.ensure_shape(images, [None, *self._size, 3])
        return images, tf.ensure_shape(labels, [None])

    def _one(self, index):
        item = self._source.read({"index": index[tf.newaxis]})
        label = item["label"][0]
        limit = self._source.num_classes or tf.int64.max
        check = tf.debugging.Assert((label >= 0) & (label < limit), [label])
        with tf.control_dependencies([check]):
            return self._prepare(item["image"][0]), tf.identity(label)

    def _good_block(self, indices):
        images, labels = zip(*(self._good(int(k)) for k in indices), strict=True)
        return np.stack(images), np.array(labels)

    def _good(self, index):
        """The first good record from this one on."""
        source = self._source
        for step in range(source.num_examples):
            candidate = (index + step) % source.num_examples
            if candidate in self.skipped:
                continue
            entry = {"index": tf.constant([candidate], tf.int64)}
            error = fault(source, entry, self._prepare, source.num_classes)
            if error is None:
                item = source.read(entry)
                return self._prepare(item["image"][0]).numpy(), int(item["label"][0])
            with self._lock:
                known = candidate in self.skipped
                self.skipped[candidate] = str(error)
            if not known and len(self.skipped) <= _MOST_NAMED:
                logging.warning("Left out: %s", error)
        raise ValueError(f"{source.name} holds no record that can be read.")
