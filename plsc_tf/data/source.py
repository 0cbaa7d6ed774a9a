"""Where examples come from, and in which order an epoch visits them.

A source splits its work in two: `blocks` says which examples come at which
positions of an epoch (cheap, stateless: the order follows from seed and epoch
alone), `read` fetches the examples of a block (bytes from files, drawn images).
The pipeline reads blocks in parallel; a search for a bad image takes blocks of one.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data import sampling
from plsc_tf.data.part import Part


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


@dataclasses.dataclass(frozen=True)
class Order:
    """In which order an epoch visits the examples, and from where on.

    Attributes:
        seed: of all epochs.
        epoch: number of the epoch, from 0.
        start: examples to leave out.
        shuffle: whether the order changes from epoch to epoch.
        shuffle_buffer_size: entries that a stream is shuffled through.
        sampling: how often an example comes, see `plsc_tf.data.sampling`.
        images_per_identity: for sampling "per_identity".
        batch_size: images of a batch over all replicas, for the same and for `part`.
        part: of each batch, what is read; None: all examples, nothing is padded.
    """

    seed: int = 0
    epoch: int = 0
    start: int = 0
    shuffle: bool = True
    shuffle_buffer_size: int = 1024
    sampling: str = "uniform"
    images_per_identity: int = 4
    batch_size: int | None = None
    part: Part | None = None

    def examples(self, total: int) -> int:
        """Examples that are read, padding included, where `total` are left."""
        if self.part is None:
            return total
        return -(-total // self.batch_size) * self.part.size

    def places(self, numbers: tf.Tensor, total: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Says which of the `total` examples that are left are read.

        Args:
            numbers: int64 [n], of the examples that are read, from 0.
            total: examples that are left of the epoch.

        Returns:
            their places after the start, int64 [n], and weights, float32 [n].
        """
        if self.part is None:
            return numbers, tf.ones_like(numbers, tf.float32)
        return self.part.places(numbers, self.batch_size, total)


# That of the files.
FILE_ORDER = Order(shuffle=False)


class Source:
    """Examples of one data set split.

    Attributes:
        name: for messages.
        num_classes: number of classes, or None if unknown.
        num_examples: number of examples, or None if unknown.
        label_range: (smallest, largest) label, or None if unknown.
        heeds: names of the fields of the `DataRequest` that affect the examples,
            among those that not every data set uses; None if unknown.
    """

    name: str
    num_classes: int | None
    num_examples: int | None
    label_range: tuple[int, int] | None = None
    heeds: frozenset | None = None

    def blocks(self, size: int, order: Order) -> tf.data.Dataset:
        """Returns the entries of an epoch in order, so many at a time.

        A block holds, besides what `read` needs, "index" (int64 [block], number of the
        example in the order of the files), "position" (int64 [block], in the epoch)
        and "weight" (float32 [block], 0 where an example pads a batch).

        Args:
            size: examples per block; the last block may be smaller.
            order: which epoch, and from where on.
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
        for item in self.epoch(start=start, shuffle=False):
            image = item["image"]
            if isinstance(image, tf.RaggedTensor):
                image = image.to_tensor()
            yield Record(image.numpy(), int(item["label"]), int(item["index"]))

    def fingerprint(self) -> str:
        """A text that changes when the examples do, as far as names and files show."""
        raise NotImplementedError

    def contents(self) -> str:
        """A text that is the same on all machines that hold the same examples.

        Shows less than `fingerprint`: neither places nor times of files.
        """
        told = f"{self.name}\0{self.num_examples}"
        return hashlib.sha256(told.encode()).hexdigest()

    def with_fetch(self, fetch: Callable, labels: tf.Tensor) -> Source:
        """Returns a source of the same order whose images come from elsewhere.

        Args:
            fetch: as of `IndexedSource`.
            labels: int64 [num_examples].
        """
        raise NotImplementedError

    def with_arrays(self, images: tf.Tensor, labels: tf.Tensor) -> Source:
        """Returns a source of the same order whose images lie in memory.

        Args:
            images: uint8 [num_examples, h, w, 3], row = index of the example.
            labels: int64 [num_examples].
        """
        return self.with_fetch(lambda index: tf.gather(images, index), labels)

    def epoch(self, **order) -> tf.data.Dataset:
        """Returns {"image", "label", "index"} of an epoch, one example at a time.

        Args:
            **order: the attributes of an `Order`.
        """
        blocks = self.blocks(16, Order(**order)).map(
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
        stamp: returns a text that changes when the files do.
        contents: returns a text that is the same for copies of the files, too.
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
        stamp: Callable[[], str] | None = None,
        contents: Callable[[], str] | None = None,
    ):
        self.name = name
        self.num_classes = num_classes
        self._fetch = fetch
        self._describe = describe
        self._stamp = stamp
        self._contents = contents
        self._labels = None
        # Labels that were read from the records later are no news of the files.
        self._tells_labels = labels is not None
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
        smallest, largest = self.label_range = int(labels.min()), int(labels.max())
        if num_classes is None and smallest >= 0:
            return largest + 1
        limit = largest + 1 if num_classes is None else num_classes
        wrong = np.flatnonzero((labels < 0) | (labels >= limit))
        if wrong.size:
            raise label_error(
                int(labels[wrong[0]]),
                self.describe(int(wrong[0])),
                limit,
                (smallest, largest),
            )
        return limit

    @property
    def labels(self) -> np.ndarray:
        """Labels in the order of the index, int64 [num_examples].

        Reads all records when they are nowhere else.
        """
        if self._labels is None:
            blocks = self.blocks(256, FILE_ORDER).map(
                without_autograph(lambda entries: self.read(entries)["label"]),
                num_parallel_calls=4,
            )
            self._labels = on_host(np.concatenate(list(blocks.as_numpy_iterator())))
        return self._labels.numpy()

    def order(self, order: Order) -> np.ndarray:
        """Returns the indices of an epoch, int64 [num_examples - start]."""
        count, generator = self.num_examples, [order.seed, order.epoch]
        if not order.shuffle:
            found = np.arange(count, dtype=np.int64)
        elif order.sampling == "uniform":
            found = np.random.default_rng(generator).permutation(count)
        else:
            found = sampling.order(
                self.labels,
                seed=order.seed,
                epoch=order.epoch,
                sampling=order.sampling,
                images_per_identity=order.images_per_identity,
                batch_size=order.batch_size,
            )
        return found[order.start :]

    def blocks(self, size: int, order: Order) -> tf.data.Dataset:
        """See `Source.blocks`; the whole set is shuffled, not a buffer of it."""
        indices = on_host(self.order(order))
        total = len(indices)
        count = order.examples(total)

        def entries(first):
            numbers = tf.range(first, tf.minimum(first + size, count))
            place, weight = order.places(numbers, total)
            return {
                "index": tf.gather(indices, place),
                "position": order.start + place,
                "weight": weight,
            }

        return tf.data.Dataset.range(0, count, size).map(without_autograph(entries))

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

    def fingerprint(self) -> str:
        """See `Source.fingerprint`: name, labels and the stamp of the files."""
        digest = hashlib.sha256(f"{self.name}\0{self.num_examples}".encode())
        if self._tells_labels:
            digest.update(memoryview(self.labels))
        if self._stamp is not None:
            digest.update(self._stamp().encode())
        return digest.hexdigest()

    def contents(self) -> str:
        """See `Source.contents`: labels, and what is known of the records."""
        digest = hashlib.sha256(f"{self.num_examples}".encode())
        if self._tells_labels:
            digest.update(memoryview(self.labels))
        if self._contents is not None:
            digest.update(self._contents().encode())
        return digest.hexdigest()

    def with_fetch(self, fetch: Callable, labels: tf.Tensor | None = None) -> Source:
        """See `Source.with_fetch`; labels None: those of this source."""
        source = copy.copy(self)
        source._fetch = fetch
        if labels is not None:
            source._labels = labels
        return source


def without_autograph(function: Callable) -> Callable:
    """A function for `Dataset.map` that holds tensors only, no Python control flow.

    TensorFlow else reads and rewrites its source, which takes longer than tracing.
    """
    return tf.autograph.experimental.do_not_convert(function)


def mix_seeds(*seeds: int) -> int:
    """Returns one non-negative int64 that depends on all seeds and their order."""
    return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]) >> 1


def on_host(array) -> tf.Tensor:
    """Returns a tensor in main memory; a captured one is no graph constant."""
    with tf.device("/CPU:0"):
        return tf.convert_to_tensor(array)


def label_error(
    label: int, where: str, num_classes: int, label_range=None
) -> ValueError:
    """Says that a label is outside [0, num_classes), where, and what to do."""
    hint = "Labels start at 0; is labels_offset right?"
    if label >= 0:
        smallest, needed = label_range or (0, label)
        hint = f"Set num_classes to at least {needed + 1}, or correct the label."
        if (smallest, needed) == (1, num_classes):
            hint = "The labels begin at 1: set labels_offset to 1."
    return ValueError(
        f"Label {label} at {where} is outside [0, num_classes). "
        f"Received: num_classes={num_classes}. {hint}"
    )
