"""Sources of examples.

A source works in two steps. `blocks` lists the examples at the positions of an epoch,
which is cheap and stateless: the order depends only on seed and epoch. `read` fetches
the examples of a block: bytes from files, or drawn images. The pipeline reads blocks
in parallel; the search for a bad image uses blocks of one example.
"""

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data.sampling import FILE_ORDER, Order
from plsc_tf.requirements import require

# Most bytes of encoded records that are read together, except for a single larger one.
_MOST_BYTES = 1 << 26


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One example, outside TensorFlow.

    Attributes:
        image: an encoded image, or pixels, uint8 `[h, w, channels]`.
        label: the label.
        index: number of the example in file order.
    """

    image: bytes | np.ndarray
    label: int
    index: int


class Source:
    """The examples of one split of a data set.

    Attributes:
        name: name for messages.
        num_classes: number of classes, or None if unknown.
        num_examples: number of examples, or None if unknown.
        label_range: (smallest, largest) label, or None if unknown.
        used_fields: names of the optional `DataRequest` fields that affect the
            examples; None if unknown. Fields that every data set uses are not included.
    """

    name: str
    num_classes: int | None
    num_examples: int | None
    label_range: tuple[int, int] | None = None
    used_fields: frozenset | None = None

    def blocks(self, size: int, order: Order) -> tf.data.Dataset:
        """Returns the entries of an epoch in order, in blocks.

        In addition to what `read` needs, a block has "index" (int64 `[block]`, number
        of the example in file order), "position" (int64 `[block]`, position in the
        epoch) and "weight" (float32 `[block]`, 0 for examples that pad a batch).

        Args:
            size: examples per block; the last block may be smaller.
            order: the epoch's order and the position at which to start.
        """
        raise NotImplementedError

    def read(self, entries: dict) -> dict:
        """Reads a block as {"image", "label", "index"}; runs inside tf.data.

        The images are strings `[block]` (encoded images) or pixels
        `[block, h, w, channels]`, as a Tensor or a RaggedTensor.
        """
        raise NotImplementedError

    def describe(self, index: int) -> str:
        """Returns the name of an example, for an error message."""
        return f"example {index} of {self.name}"

    def records(self, start: int = 0) -> Iterator[Record]:
        """Yields the examples in file order, for conversion.

        Args:
            start: number of examples to skip.
        """
        for item in self.epoch(start=start, shuffle=False):
            image = dense(item["image"]).numpy()
            yield Record(image, int(item["label"]), int(item["index"]))

    def fingerprint(self) -> str:
        """Returns a digest of what is known about the examples without reading them."""
        raise NotImplementedError

    def contents(self) -> str:
        """Returns a string that is the same on all machines with the same examples.

        Unlike `fingerprint`, it does not depend on paths and times of files.
        """
        return hashlib.sha256(f"{self.name}\0{self.num_examples}".encode()).hexdigest()

    def epoch(self, **order) -> tf.data.Dataset:
        """Returns an epoch as {"image", "label", "index"}, one example at a time.

        Args:
            **order: attributes of an `Order`.
        """
        read = without_autograph(self.read)
        blocks = self.blocks(16, Order(**order)).map(read, num_parallel_calls=4)
        return blocks.prefetch(4).unbatch()


class IndexedSource(Source):
    """A source with random access to its examples, by index.

    By default an epoch is a permutation of all indices: each example occurs exactly
    once, and starting in the middle of an epoch costs nothing.

    Args:
        name: name for messages.
        labels: int64 `[num_examples]`; None if the labels are in the records.
        fetch: maps indices, int64 `[block]`, to images (see `Source.read`) or, if
            `labels` is None, to (images, labels).
        num_classes: number of classes; None means the largest label + 1.
        num_examples: number of examples; required if `labels` is None.
        describe: function that names an example for an error message.
        stamp: function that returns a string that changes when the files change.
        contents: function that returns a string that is the same for all copies of the
            files.

    Attributes:
        labels_in_records: whether `labels` are copies, which may be missing.
        largest: function of indices, int64 `[block]`, that returns the size of the
            largest of these records in bytes, for blocks of large records to be split;
            None does not split them.
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
        self.name, self.num_classes = name, num_classes
        self.largest: Callable[[np.ndarray], int] | None = None
        self._fetch, self.labels_in_records = fetch, False
        if describe is not None:
            self.describe = describe
        self._stamp, self._contents = stamp, contents
        self._labels = None
        self.num_examples = num_examples if labels is None else len(labels)
        require(self.num_examples, f"{name} holds no examples")
        if labels is not None:
            labels = np.asarray(labels, np.int64)
            self._labels = on_host(labels)
            self.label_range = int(labels.min()), int(labels.max())
            self.num_classes = num_classes or self.label_range[1] + 1
            wrong = np.flatnonzero((labels < 0) | (labels >= self.num_classes))
            if wrong.size:
                label, where = int(labels[wrong[0]]), self.describe(int(wrong[0]))
                raise label_error(label, where, self.num_classes, self.label_range)

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """The labels in index order, int64 `[num_examples]`.

        If they are only in the records, the first access reads all records.
        """
        if self._labels is not None:
            return self._labels.numpy()
        read = without_autograph(lambda entries: self.read(entries)["label"])
        blocks = self.blocks(256, FILE_ORDER).map(read, num_parallel_calls=4)
        return np.concatenate(list(blocks.as_numpy_iterator()))

    def blocks(self, size: int, order: Order) -> tf.data.Dataset:
        """See `Source.blocks`; shuffles the whole set, without a buffer."""
        indices = on_host(order.indices(self.num_examples, lambda: self.labels))
        total = len(indices)
        count = order.examples(total)

        def entries(first):
            numbers = tf.range(first, tf.minimum(first + size, count))
            place, weight = order.places(numbers, total)
            index, position = tf.gather(indices, place), order.start + place
            return {"index": index, "position": position, "weight": weight}

        blocks = tf.data.Dataset.range(0, count, size).map(without_autograph(entries))
        return blocks if self.largest is None else blocks.flat_map(self._split)

    def _split(self, entries):
        """Splits a block so that its records, read together, fit into memory."""
        index = entries["index"]
        largest = in_python(lambda k: np.int64(self.largest(k)), [index], tf.int64, [])
        size = tf.maximum(_MOST_BYTES // tf.maximum(largest, 1), 1)

        def part(start):
            return {name: row[start : start + size] for name, row in entries.items()}

        starts = tf.data.Dataset.range(0, tf.size(index, tf.int64), size)
        return starts.map(without_autograph(part))

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
        """See `Source.fingerprint`; a digest of name, labels, `contents` and stamp."""
        text = f"{self.name}\0{self.num_examples}"
        return self._digest(text, self._contents, self._stamp)

    def contents(self) -> str:
        """See `Source.contents`; a digest of `contents` and the labels."""
        return self._digest(f"{self.num_examples}", self._contents)

    def _digest(self, text, *details):
        digest = hashlib.sha256(text.encode())
        # Otherwise, it would depend on whether an index is there.
        if self._labels is not None and not self.labels_in_records:
            digest.update(memoryview(self.labels))
        for one in filter(None, details):
            digest.update(one().encode())
        return digest.hexdigest()

    def with_fetch(self, fetch: Callable) -> "IndexedSource":
        """Returns a source of the same examples that fetches them differently."""
        source = copy.copy(self)
        source._fetch = fetch
        return source


def map_rows(function: Callable, rows) -> tf.Tensor:
    """Applies a function to each row of tensors.

    In a graph, a row takes a few microseconds, less than in `tf.map_fn`. The rows are
    processed in one thread, because the pipeline maps blocks in parallel.

    Args:
        function: maps a row, with the structure of `rows`, to a tensor whose shape and
            type are the same for all rows.
        rows: nested tensors `[n, ...]`. A row of a RaggedTensor must be dense.

    Returns:
        A tensor `[n, ...]`.
    """
    tensors = tf.nest.flatten(rows)
    if tf.executing_eagerly():
        flat = zip(*tensors, strict=True)
        return tf.stack([function(tf.nest.pack_sequence_as(rows, row)) for row in flat])

    def is_ragged(tensor):
        return isinstance(tensor, tf.RaggedTensor)

    # The rows of a RaggedTensor are passed as their numbers.
    columns = [tf.range(t.nrows()) if is_ragged(t) else t for t in tensors]

    def on_row(*row):
        pairs = zip(tensors, row, strict=True)
        values = [dense(t[one]) if is_ragged(t) else one for t, one in pairs]
        return function(tf.nest.pack_sequence_as(rows, values))

    specs = [tf.TensorSpec(column.shape[1:], column.dtype) for column in columns]
    graph = tf.function(on_row, autograph=False).get_concrete_function(*specs)
    result = graph.structured_outputs
    return tf.raw_ops.MapDefun(
        arguments=columns,
        captured_inputs=graph.captured_inputs,
        output_types=[result.dtype],
        output_shapes=[result.shape],
        f=graph,
        max_intra_op_parallelism=1,
    )[0]


def in_python(function: Callable, inputs: list, dtype: tf.DType, shape) -> tf.Tensor:
    """Calls a function of NumPy arrays inside tf.data; its result has a known shape."""
    result = tf.numpy_function(function, inputs, dtype, stateful=False)
    return tf.ensure_shape(result, shape)


def dense(image) -> tf.Tensor:
    """Converts an image to a dense tensor if it is a RaggedTensor."""
    return image.to_tensor() if isinstance(image, tf.RaggedTensor) else image


def dataset_options() -> tf.data.Options:
    """Returns the options for all datasets: no rewrites, autotuning or sharding."""
    options = tf.data.Options()
    options.deterministic = True
    # TensorFlow's graph rewrites would copy every captured table and cached image in
    # each epoch without improving these pipelines.
    options.experimental_optimization.apply_default_optimizations = False
    # Autotuning runs in a thread that must finish before an epoch can end, which took
    # up to two minutes. The degrees of parallelism are options anyway.
    options.autotune.enabled = False
    off = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = off
    return options


def without_autograph(function: Callable) -> Callable:
    """Disables AutoGraph for a function that has no Python control flow on tensors.

    Otherwise TensorFlow parses and rewrites the function's source code, which takes
    longer than tracing it.
    """
    return tf.autograph.experimental.do_not_convert(function)


def mix_seeds(*seeds: int) -> int:
    """Combines seeds into one non-negative int64 that depends on their order."""
    return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]) >> 1


def on_host(array) -> tf.Tensor:
    """Returns a tensor in host memory; graphs capture it instead of copying it."""
    with tf.device("/CPU:0"):
        return tf.convert_to_tensor(array)


def label_error(
    label: int, where: str, num_classes: int, label_range=None
) -> ValueError:
    """Returns the error for a label outside [0, num_classes), with a remedy."""
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
