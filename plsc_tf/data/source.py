"""Where examples come from, and in which order an epoch visits them.

A source splits its work in two: `blocks` says which examples come at which
positions of an epoch (cheap, stateless: the order follows from seed and epoch
alone), `read` fetches the examples of a block (bytes from files, drawn pictures).
The pipeline reads blocks in parallel; a search for a bad image takes blocks of one.
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

    def blocks(
        self, size, *, seed, epoch, start=0, shuffle=True, shuffle_buffer_size=1024
    ) -> tf.data.Dataset:
        """Returns the entries of an epoch in order, so many at a time.

        Args:
            size: examples per block; the last block may be smaller.
            seed: of the order.
            epoch: number of the epoch, from 0.
            start: examples to leave out.
            shuffle: whether the order changes from epoch to epoch.
            shuffle_buffer_size: entries that a stream is shuffled through.
        """
        raise NotImplementedError

    def read(self, entries: dict) -> dict:
        """Turns a block into {"image", "label", "index"}; runs inside tf.data.

        The images are strings [block] (encoded files), an array
        [block, h, w, channels], or the same as a RaggedTensor.
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
        for item in self.epoch(seed=0, epoch=0, start=start, shuffle=False):
            image = item["image"]
            if isinstance(image, tf.RaggedTensor):
                image = image.to_tensor()
            yield Record(image.numpy(), int(item["label"]), int(item["index"]))

    def fingerprint(self) -> str:
        """A text that changes when the examples do, as far as their files tell."""
        return self.name

    def with_fetch(self, fetch: Callable, labels: tf.Tensor) -> Source:
        """Returns a source of the same order whose pictures come from elsewhere.

        Args:
            fetch: as of `IndexedSource`.
            labels: int64 [num_examples].
        """
        raise NotImplementedError

    def with_arrays(self, images: tf.Tensor, labels: tf.Tensor) -> Source:
        """Returns a source of the same order whose pictures lie in memory.

        Args:
            images: uint8 [num_examples, h, w, 3], row = index of the example.
            labels: int64 [num_examples].
        """
        return self.with_fetch(lambda index: tf.gather(images, index), labels)

    def epoch(self, **order) -> tf.data.Dataset:
        """Returns {"image", "label", "index"} of an epoch, one example at a time.

        Args:
            **order: as for `blocks`, but for the size.
        """
        blocks = self.blocks(16, **order).map(
            without_autograph(self.read), num_parallel_calls=4
        )
        return blocks.prefetch(4).unbatch()


class IndexedSource(Source):
    """A source whose every example can be fetched by its index.

    An epoch is a permutation of all indices, so each example comes exactly once
    and a start in the middle costs nothing.

    Args:
        name: for messages.
        labels: int64 [num_examples]; None when they are in the records.
        fetch: maps int64 [block], indices, to the images, see `Source.read`; where
            there are no labels, to (images, labels).
        num_classes: number of classes; None means largest label + 1.
        num_examples: number of examples, where there are no labels.
        describe: names an example for an error message.
    """

    def __init__(
        self,
        name: str,
        labels: np.ndarray | None,
        fetch: Callable,
        *,
        num_classes: int | None = None,
        num_examples: int | None = None,
        describe: Callable[[int], str] | None = None,
    ):
        self.name = name
        self.num_classes = num_classes
        self._fetch = fetch
        self._describe = describe
        self._labels = None
        if labels is not None:
            labels = np.asarray(labels, np.int64)
            if labels.ndim != 1:
                raise ValueError(
                    f"{name}: labels must be [num_examples]. "
                    f"Received: labels of shape {labels.shape}."
                )
            num_examples = len(labels)
        if not num_examples:
            raise ValueError(f"{name} holds no examples.")
        self.num_examples = num_examples
        if labels is not None:
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
        """Labels in the order of the index, int64 [num_examples].

        Reads all records when they are nowhere else.
        """
        if self._labels is None:
            blocks = self.blocks(256, seed=0, epoch=0, shuffle=False).map(
                without_autograph(lambda entries: self.read(entries)["label"]),
                num_parallel_calls=4,
            )
            self._labels = on_host(np.concatenate(list(blocks.as_numpy_iterator())))
        return self._labels.numpy()

    def order(self, *, seed: int, epoch: int, shuffle: bool = True) -> np.ndarray:
        """Returns the indices in the order of this epoch, int64 [num_examples]."""
        if not shuffle:
            return np.arange(self.num_examples, dtype=np.int64)
        return np.random.default_rng([seed, epoch]).permutation(self.num_examples)

    def blocks(
        self, size, *, seed, epoch, start=0, shuffle=True, shuffle_buffer_size=1024
    ) -> tf.data.Dataset:
        """See `Source.blocks`; the whole set is shuffled, not a buffer of it."""
        order = self.order(seed=seed, epoch=epoch, shuffle=shuffle)[start:]
        order = on_host(order)
        return tf.data.Dataset.range(0, len(order), size).map(
            without_autograph(lambda first: {"index": order[first : first + size]})
        )

    def read(self, entries: dict) -> dict:
        """See `Source.read`."""
        index = entries["index"]
        fetched = self._fetch(index)
        if isinstance(fetched, tuple):
            images, labels = fetched
        else:
            images, labels = fetched, tf.gather(self._labels, index)
        return {"image": images, "label": labels, "index": index}

    def describe(self, index: int) -> str:
        """See `Source.describe`."""
        if self._describe is None:
            return super().describe(index)
        return self._describe(index)

    def with_fetch(self, fetch: Callable, labels: tf.Tensor) -> Source:
        """See `Source.with_fetch`."""
        return IndexedSource(
            self.name,
            labels.numpy(),
            fetch,
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

    def blocks(
        self, size, *, seed, epoch, start=0, shuffle=True, shuffle_buffer_size=1024
    ) -> tf.data.Dataset:
        """See `Source.blocks`; a start in the middle reads what lies before it."""
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
            without_autograph(open_numbered),
            cycle_length=at_once,
            block_length=1,
            num_parallel_calls=at_once,
            deterministic=True,
        )
        if shuffle and shuffle_buffer_size > 1:
            entries = shuffled(entries, shuffle_buffer_size, mix_seeds(seed, epoch))
        entries = entries.skip(start) if start else entries
        entries = entries.map(without_autograph(self._parsed), num_parallel_calls=4)
        return entries.ragged_batch(size)

    def _parsed(self, index, raw):
        image, label = self._parse(raw)
        return {"image": image, "label": tf.cast(label, tf.int64), "index": index}

    def read(self, entries: dict) -> dict:
        """See `Source.read`."""
        return entries

    def describe(self, index: int) -> str:
        """See `Source.describe`."""
        if self._describe is None:
            return super().describe(index)
        return self._describe(index)

    def with_fetch(self, fetch: Callable, labels: tf.Tensor) -> Source:
        """See `Source.with_fetch`; the order is that of the parts on disk."""
        sizes = self._part_sizes if self.num_examples else (len(labels),)
        firsts = on_host(np.cumsum((0, *sizes)).astype(np.int64))
        return StreamSource(
            self.name,
            sizes,
            lambda part: tf.data.Dataset.range(
                tf.gather(firsts, part), tf.gather(firsts, part + 1)
            ),
            lambda index: (fetch(index[tf.newaxis])[0], tf.gather(labels, index)),
            num_classes=self.num_classes,
            describe=self._describe,
        )


def without_autograph(function: Callable) -> Callable:
    """A function for `Dataset.map` that holds tensors only, no Python control flow.

    TensorFlow else reads and rewrites its source, which takes longer than tracing.
    """
    return tf.autograph.experimental.do_not_convert(function)


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
