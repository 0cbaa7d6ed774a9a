"""Where examples come from, and in which order an epoch visits them.

A source splits its work in two: `entries` says which example comes at which
position of an epoch (cheap, stateless: the order follows from seed and epoch
alone), `read` fetches one example (bytes from a file, a drawn picture). The
pipeline runs `read` in parallel; a search for a bad image runs it one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

# Files of a stream that are read at the same time, so that a shuffle buffer of
# 1,024 records sees more than one of them.
_FILES_AT_ONCE = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One example outside of TensorFlow.

    Attributes:
        image: the bytes of an encoded file, or uint8 [h, w, channels].
        label: an int.
        index: its number in the order of the files.
    """

    image: bytes | np.ndarray
    label: int
    index: int


class Source:
    """Examples of one data set split.

    Attributes:
        name: for messages.
        num_classes: number of classes, or None when it is not known.
        num_examples: number of examples, or None when it is not known.
    """

    name: str
    num_classes: int | None
    num_examples: int | None

    def entries(
        self, *, seed, epoch, start=0, shuffle=True, shuffle_buffer_size=1024
    ) -> tf.data.Dataset:
        """Returns the entries of an epoch in order, from position `start` on."""
        raise NotImplementedError

    def read(self, entry: dict) -> dict:
        """Turns an entry into {"image", "label", "index"}; runs inside tf.data.

        The image is an encoded string scalar or an array [h, w, channels].
        """
        raise NotImplementedError

    def describe(self, index: int) -> str:
        """Names the example with this index, for an error message."""
        return f"example {index} of {self.name}"

    def records(self, start: int = 0) -> Iterator[Record]:
        """Yields the examples in the order of the files, as conversion needs them.

        Args:
            start: examples to leave out.
        """
        entries = self.entries(seed=0, epoch=0, start=start, shuffle=False)
        items = entries.map(self.read, num_parallel_calls=4).prefetch(64)
        for item in items.as_numpy_iterator():
            yield Record(item["image"], int(item["label"]), int(item["index"]))

    def with_arrays(self, images: tf.Tensor, labels: tf.Tensor) -> Source:
        """Returns a source of the same order whose pictures lie in memory.

        Args:
            images: uint8 [num_examples, h, w, 3], row = index of the example.
            labels: int64 [num_examples].
        """
        raise NotImplementedError

    def epoch(self, **order) -> tf.data.Dataset:
        """Returns {"image", "label", "index"} of an epoch in order.

        Args:
            **order: as for `entries`: seed, epoch, start, shuffle,
                shuffle_buffer_size.
        """
        return self.entries(**order).map(self.read)


class IndexedSource(Source):
    """A source whose every example can be fetched by its index.

    An epoch is a permutation of all indices, so each example comes exactly once
    and a start in the middle costs nothing.

    Args:
        name: for messages.
        labels: int64 [num_examples].
        fetch: maps an int64 scalar tensor, the index, to the image.
        num_classes: number of classes; None means largest label + 1.
        describe: names an example for an error message.
    """

    def __init__(
        self,
        name: str,
        labels: np.ndarray,
        fetch: Callable[[tf.Tensor], tf.Tensor],
        *,
        num_classes: int | None = None,
        describe: Callable[[int], str] | None = None,
    ):
        labels = np.asarray(labels, np.int64)
        if labels.ndim != 1 or not labels.size:
            raise ValueError(
                f"{name} holds no examples. Received: labels of shape {labels.shape}."
            )
        self.name = name
        self.num_examples = len(labels)
        self._fetch = fetch
        self._describe = describe
        self.num_classes = self._check_labels(labels, num_classes)
        self._labels = on_host(labels)

    def _check_labels(self, labels, num_classes) -> int:
        smallest, largest = int(labels.min()), int(labels.max())
        if num_classes is None and smallest >= 0:
            return largest + 1
        limit = largest + 1 if num_classes is None else num_classes
        wrong = np.flatnonzero((labels < 0) | (labels >= limit))
        if wrong.size:
            raise label_error(
                int(labels[wrong[0]]), self.describe(int(wrong[0])), limit, largest
            )
        return limit

    @property
    def labels(self) -> np.ndarray:
        """Labels in the order of the index, int64 [num_examples]."""
        return self._labels.numpy()

    def order(self, *, seed: int, epoch: int, shuffle: bool = True) -> np.ndarray:
        """Returns the indices in the order of this epoch, int64 [num_examples]."""
        if not shuffle:
            return np.arange(self.num_examples, dtype=np.int64)
        return np.random.default_rng([seed, epoch]).permutation(self.num_examples)

    def entries(
        self, *, seed, epoch, start=0, shuffle=True, shuffle_buffer_size=1024
    ) -> tf.data.Dataset:
        """See `Source.entries`; the whole set is shuffled, not a buffer of it."""
        order = self.order(seed=seed, epoch=epoch, shuffle=shuffle)[start:]
        indices = tf.data.Dataset.from_tensor_slices(on_host(order))
        return indices.map(lambda index: {"index": index})

    def read(self, entry: dict) -> dict:
        """See `Source.read`."""
        index = entry["index"]
        return {
            "image": self._fetch(index),
            "label": tf.gather(self._labels, index),
            "index": index,
        }

    def describe(self, index: int) -> str:
        """See `Source.describe`."""
        if self._describe is None:
            return super().describe(index)
        return self._describe(index)

    def with_arrays(self, images: tf.Tensor, labels: tf.Tensor) -> Source:
        """See `Source.with_arrays`."""
        return IndexedSource(
            self.name,
            labels.numpy(),
            lambda index: tf.gather(images, index),
            num_classes=self.num_classes,
            describe=self._describe,
        )


class StreamSource(Source):
    """A source that can only be read from the front: record files, generators.

    Args:
        name: for messages.
        part_sizes: number of examples of each part (file), in order. A single part
            may be of unknown size: (None,).
        open_part: maps an int64 scalar tensor, the part, to a tf.data.Dataset.
        parse: maps an element of such a data set to (image, label).
        num_classes: number of classes, or None when it is not known.
        describe: names an example for an error message.
    """

    def __init__(
        self,
        name: str,
        part_sizes: Sequence[int | None],
        open_part: Callable[[tf.Tensor], tf.data.Dataset],
        parse: Callable,
        *,
        num_classes: int | None = None,
        describe: Callable[[int], str] | None = None,
    ):
        self.name = name
        self.num_classes = num_classes
        known = all(size is not None for size in part_sizes)
        self.num_examples = sum(part_sizes) if known else None
        self._part_sizes = tuple(part_sizes)
        self._open_part = open_part
        self._parse = parse
        self._describe = describe

    def entries(
        self, *, seed, epoch, start=0, shuffle=True, shuffle_buffer_size=1024
    ) -> tf.data.Dataset:
        """See `Source.entries`; a start in the middle reads what lies before it."""
        parts = np.arange(len(self._part_sizes), dtype=np.int64)
        at_once = 1
        if shuffle:
            parts = np.random.default_rng([seed, epoch]).permutation(parts)
            at_once = min(len(parts), _FILES_AT_ONCE)
        firsts = np.cumsum([0] + [size or 0 for size in self._part_sizes[:-1]])
        firsts = on_host(firsts.astype(np.int64))

        def open_numbered(part):
            numbers = tf.data.Dataset.counter(tf.gather(firsts, part), 1)
            return tf.data.Dataset.zip((numbers, self._open_part(part)))

        entries = tf.data.Dataset.from_tensor_slices(on_host(parts)).interleave(
            open_numbered,
            cycle_length=at_once,
            block_length=1,
            num_parallel_calls=at_once,
            deterministic=True,
        )
        entries = entries.map(lambda index, raw: {"index": index, "raw": raw})
        if shuffle and shuffle_buffer_size > 1:
            entries = shuffled(entries, shuffle_buffer_size, mix_seeds(seed, epoch))
        return entries.skip(start) if start else entries

    def read(self, entry: dict) -> dict:
        """See `Source.read`."""
        image, label = self._parse(entry["raw"])
        return {
            "image": image,
            "label": tf.cast(label, tf.int64),
            "index": entry["index"],
        }

    def describe(self, index: int) -> str:
        """See `Source.describe`."""
        if self._describe is None:
            return super().describe(index)
        return self._describe(index)

    def with_arrays(self, images: tf.Tensor, labels: tf.Tensor) -> Source:
        """See `Source.with_arrays`; the order is that of the parts on disk."""
        sizes = self._part_sizes if self.num_examples else (len(labels),)
        firsts = on_host(np.cumsum((0, *sizes)).astype(np.int64))
        return StreamSource(
            self.name,
            sizes,
            lambda part: tf.data.Dataset.range(
                tf.gather(firsts, part), tf.gather(firsts, part + 1)
            ),
            lambda index: (tf.gather(images, index), tf.gather(labels, index)),
            num_classes=self.num_classes,
            describe=self._describe,
        )


def mix_seeds(*seeds: int) -> int:
    """Returns one non-negative int64 that depends on all seeds and their order."""
    return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]) >> 1


def shuffled(dataset: tf.data.Dataset, buffer_size: int, seed: int) -> tf.data.Dataset:
    """Shuffles through a buffer in an order that follows from `seed` alone.

    `Dataset.shuffle` mixes in the seed of `tf.random.set_seed`, so that a resumed
    process which sets another one would see other examples; the op itself does not.
    """
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=buffer_size,
        seed=seed,
        seed2=1,
        reshuffle_each_iteration=False,
        output_types=[spec.dtype for spec in tf.nest.flatten(dataset.element_spec)],
        output_shapes=[spec.shape for spec in tf.nest.flatten(dataset.element_spec)],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def on_host(array) -> tf.Tensor:
    """Returns a tensor in main memory; a captured one is no graph constant."""
    with tf.device("/CPU:0"):
        return tf.convert_to_tensor(array)


def label_error(label: int, where: str, num_classes: int, largest=None) -> ValueError:
    """Says that a label is outside [0, num_classes), where, and what to do."""
    hint = "Labels start at 0; is labels_offset right?"
    if label >= 0:
        needed = label if largest is None else largest
        hint = f"Set num_classes to at least {needed + 1}, or correct the label."
    return ValueError(
        f"Label {label} at {where} is outside [0, num_classes). "
        f"Received: num_classes={num_classes}. {hint}"
    )
