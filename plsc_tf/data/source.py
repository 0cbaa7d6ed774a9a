"""Sources of examples.

A source splits its work in two: `blocks` lists the examples at the positions of an
epoch (cheap, stateless: the order follows from seed and epoch alone), `read` fetches
the examples of a block (bytes from files, drawn images). The pipeline reads blocks in
parallel; a search for a bad image takes blocks of one.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data.sampling import FILE_ORDER, Order


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
            image = dense(item["image"]).numpy()
            yield Record(image, int(item["label"]), int(item["index"]))

    def fingerprint(self) -> str:
        """A text that changes when the examples do, as far as names and files show."""
        raise NotImplementedError

    def contents(self) -> str:
        """A text that is the same on all machines that hold the same examples.

        Shows less than `fingerprint`: neither places nor times of files.
        """
        text = f"{self.name}\0{self.num_examples}"
        return hashlib.sha256(text.encode()).hexdigest()

    def with_fetch(self, fetch: Callable, labels: tf.Tensor) -> Source:
        """Returns a source of the same order whose images come from elsewhere.

        Args:
            fetch: as of `IndexedSource`.
            labels: int64 [num_examples].
        """
        raise NotImplementedError

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
        if describe is not None:
            self.describe = describe
        self._stamp = stamp
        self._contents = contents
        self._labels = None
        # Labels that are read from the records later are not part of the digests.
        self._labels_are_given = labels is not None
        if labels is not None:
            labels = np.asarray(labels, np.int64)
            num_examples = len(labels)
        if not num_examples:
            raise ValueError(f"{name} holds no examples.")
        self.num_examples = num_examples
        if labels is not None:
            self._labels = on_host(labels)
            self.label_range = int(labels.min()), int(labels.max())
            self.num_classes = num_classes or self.label_range[1] + 1
            wrong = np.flatnonzero((labels < 0) | (labels >= self.num_classes))
            if wrong.size:
                label, where = int(labels[wrong[0]]), self.describe(int(wrong[0]))
                raise label_error(label, where, self.num_classes, self.label_range)

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

    def blocks(self, size: int, order: Order) -> tf.data.Dataset:
        """See `Source.blocks`; the whole set is shuffled, not a buffer of it."""
        indices = on_host(order.indices(self.num_examples, lambda: self.labels))
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

    def fingerprint(self) -> str:
        """See `Source.fingerprint`: name, labels and the stamp of the files."""
        return self._digest(f"{self.name}\0{self.num_examples}", self._stamp)

    def contents(self) -> str:
        """See `Source.contents`: labels, and a digest of the records."""
        return self._digest(f"{self.num_examples}", self._contents)

    def _digest(self, text, details):
        digest = hashlib.sha256(text.encode())
        if self._labels_are_given:
            digest.update(memoryview(self.labels))
        if details is not None:
            digest.update(details().encode())
        return digest.hexdigest()

    def with_fetch(self, fetch: Callable, labels: tf.Tensor | None = None) -> Source:
        """See `Source.with_fetch`; labels None: those of this source."""
        source = copy.copy(self)
        source._fetch = fetch
        if labels is not None:
            source._labels = labels
        return source


def dense(image) -> tf.Tensor:
    """An image of a block of images of different sizes, as a tensor."""
    return image.to_tensor() if isinstance(image, tf.RaggedTensor) else image


def dataset_options() -> tf.data.Options:
    """Options of every data set here: nothing is rewritten, tuned or sharded."""
    options = tf.data.Options()
    options.deterministic = True
    # TensorFlow's graph rewrites copy every captured table and cached image for
    # each epoch, and rewrite nothing that is written out here already.
    options.experimental_optimization.apply_default_optimizations = False
    # Autotuning plans in a thread that the end of every epoch waits for: up to two
    # minutes here. The degrees of parallelism are options anyway.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    return options


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
