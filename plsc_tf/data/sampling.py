"""Determines the order of the examples of an epoch and which of them a worker reads.

The order depends only on (labels, seed, epoch): it is the same in every process, on
any number of replicas and from any starting position. An epoch has as many positions
as there are examples, however often the sampling repeats an example.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from plsc_tf.requirements import require

SAMPLINGS = ("uniform", "class_balanced", "per_identity")


@dataclasses.dataclass(frozen=True)
class Part:
    """A worker's part of each padded global batch: positions [first, last).

    In a batch of `count` examples, position p of the padded batch has example
    p % count, with weight 0 if p >= count, as in `plsc_tf.training.batching.pad`.

    Args:
        first: first position.
        last: position after the last one.
    """

    first: int
    last: int

    @property
    def size(self) -> int:
        """Number of examples in this part of a batch."""
        return self.last - self.first

    def of_stream(self, examples: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        """Selects the examples of this part from a dataset of all examples.

        The number of examples need not be known. Buffers one global batch.

        Args:
            examples: dataset that yields a tuple for each example.
            batch_size: global batch size, in examples.

        Returns:
            tf.data.Dataset of (example, weight); the weight is a float32 scalar.
        """

        def picked(*columns):
            batch = tf.data.Dataset.zip(columns)
            places = tf.range(self.first, self.last, dtype=tf.int64)
            weights = tf.cast(places < batch.cardinality(), tf.float32)
            weights = tf.data.Dataset.from_tensor_slices(weights)
            shown = batch.repeat().skip(self.first).take(self.size)
            return tf.data.Dataset.zip((shown, weights))

        picked = tf.autograph.experimental.do_not_convert(picked)
        return examples.window(batch_size).flat_map(picked)


@dataclasses.dataclass(frozen=True)
class Order:
    """The order of an epoch's examples and the position at which to start.

    Attributes:
        seed: random seed for all epochs.
        epoch: number of the epoch, from 0.
        start: number of examples to skip.
        shuffle: whether to shuffle each epoch differently.
        shuffle_buffer_size: number of entries in the shuffle buffer of a stream.
        sampling: how often each example occurs: "uniform" (once), "class_balanced" or
            "per_identity"; see the functions of this module.
        images_per_identity: consecutive images of one class, for "per_identity".
        batch_size: global batch size in images, for "per_identity" and `part`.
        part: the part of each batch to read; None reads all examples, without padding.
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

    def indices(self, count: int, labels: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns the epoch's indices after the skipped ones, int64 `[count - start]`.

        Args:
            count: number of examples.
            labels: function that returns the label of each example, int `[count]`.
        """
        random = np.random.default_rng([self.seed, self.epoch])
        if not self.shuffle:
            indices = np.arange(count, dtype=np.int64)
        elif self.sampling == "uniform":
            indices = random.permutation(count)
        elif self.sampling == "class_balanced":
            indices = class_balanced(labels(), random)
        else:
            sizes = self.images_per_identity, self.batch_size
            indices = per_identity(labels(), random, *sizes)
        return indices[self.start :]

    def examples(self, total: int) -> int:
        """Returns how many examples to read, with padding, if `total` remain."""
        if self.part is None:
            return total
        return -(-total // self.batch_size) * self.part.size

    def places(self, numbers: tf.Tensor, total: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps numbers of examples to read to positions in the rest of the epoch.

        Args:
            numbers: int64 `[n]`, numbers in 0...`examples(total) - 1`.
            total: number of examples that remain of the epoch.

        Returns:
            Positions relative to the start, int64 `[n]`, and weights, float32 `[n]`.
        """
        if self.part is None:
            return numbers, tf.ones_like(numbers, tf.float32)
        begin = numbers // self.part.size * self.batch_size
        count = tf.minimum(total - begin, self.batch_size)
        position = self.part.first + numbers % self.part.size
        return begin + position % count, tf.cast(position < count, tf.float32)


# Visits the examples in file order.
FILE_ORDER = Order(shuffle=False)


def class_balanced(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draws every class equally often, plus or minus one, in random order.

    Repeats the images of a small class equally often, plus or minus one; of a large
    class, each epoch uses a different random subset.

    Args:
        labels: int `[n]`.
        random: the epoch's random generator.

    Returns:
        Indices, int64 `[n]`.
    """
    grouped, firsts, sizes = _grouped(labels, random)
    total, classes = len(grouped), len(sizes)
    draws = np.full(classes, total // classes, np.int64)
    draws[random.permutation(classes)[: total % classes]] += 1
    places = _within(draws)
    places %= np.repeat(sizes, draws)
    places += np.repeat(firsts, draws)
    return grouped[random.permutation(places)]


def per_identity(
    labels: np.ndarray,
    random: np.random.Generator,
    images_per_identity: int,
    batch_size: int | None = None,
) -> np.ndarray:
    """Draws groups of N consecutive images of one class, classes in random order.

    A batch of P * N images therefore has N images of each of P classes. A class of m
    images gets ceil(m / N) groups, spread over the epoch; incomplete groups are filled
    with repeated images of the class. This draws more than n images, so the end of the
    epoch is cut off.

    Args:
        labels: int `[n]`.
        random: the epoch's random generator.
        images_per_identity: N.
        batch_size: P * N; None if unknown.

    Returns:
        Indices, int64 `[n]`.

    Raises:
        ValueError: N is not positive, or `batch_size` is not a multiple of N.
    """
    fits = images_per_identity >= 1 and not (batch_size or 0) % images_per_identity
    rule = "The global batch must be a positive multiple of images_per_identity"
    require(fits, rule, batch_size=batch_size, images_per_identity=images_per_identity)
    grouped, firsts, sizes = _grouped(labels, random)
    groups = -(-sizes // images_per_identity)
    owner = np.repeat(np.arange(len(sizes)), groups)
    number = _within(groups)
    # Group j of a class with J groups gets a random time in the j-th of J equal parts
    # of the epoch.
    turn = np.argsort((number + random.random(len(number), np.float32)) / groups[owner])
    turn = turn[: -(-len(grouped) // images_per_identity)]
    owner, number = owner[turn], number[turn]
    places = number[:, np.newaxis] * images_per_identity
    places = places + np.arange(images_per_identity)
    places %= sizes[owner][:, np.newaxis]
    places += firsts[owner][:, np.newaxis]
    return grouped[places.reshape(-1)[: len(grouped)]]


def _within(counts):
    """Returns 0, 1, ... counts[0] - 1, 0, 1, ... counts[1] - 1 and so on."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _grouped(labels, random):
    """Groups indices by class, shuffled within each class.

    Returns:
        The indices, and the first place and the number of indices of each class that
        has examples.
    """
    indices = random.permutation(len(labels))
    indices = indices[np.argsort(labels[indices], kind="stable")]
    ordered = labels[indices]
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return indices, firsts, np.diff(np.append(firsts, len(labels)))
