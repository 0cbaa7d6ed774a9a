"""Which examples an epoch shows, in which order, and which of them a worker reads.

Pure functions of (labels, seed, epoch): the same order in every process, on any
number of replicas, from any position on. An epoch has one position for each example,
however often the sampling shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

SAMPLINGS = ("uniform", "class_balanced", "per_identity")


@dataclasses.dataclass(frozen=True)
class Part:
    """Positions [first, last) of each global batch, which is padded to a fixed size.

    Padded position p shows example p % count of a batch of `count` examples, with
    weight 0 where p >= count, as in `plsc_tf.training.batching.pad`.

    Args:
        first: first position.
        last: the one after the last position.
        padded: examples of a padded global batch.
    """

    first: int
    last: int
    padded: int

    def __post_init__(self):
        if not 0 <= self.first < self.last <= self.padded:
            raise ValueError(
                f"A part needs 0 <= first < last <= padded. Received: {self}."
            )

    @property
    def size(self) -> int:
        """Examples of this part of a batch."""
        return self.last - self.first

    def of_stream(self, examples: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        """Picks the examples of this part from a data set of all examples.

        Their number need not be known. Holds one global batch of them.

        Args:
            examples: yields tuples, one for each example.
            batch_size: examples of a full global batch.

        Returns:
            tf.data.Dataset of (example, weight, a float32 scalar).
        """

        def picked(*columns):
            batch = tf.data.Dataset.zip(columns)
            places = tf.range(self.first, self.last, dtype=tf.int64)
            weights = tf.cast(places < batch.cardinality(), tf.float32)
            shown = batch.repeat().skip(self.first).take(self.size)
            return tf.data.Dataset.zip(
                (shown, tf.data.Dataset.from_tensor_slices(weights))
            )

        picked = tf.autograph.experimental.do_not_convert(picked)
        return examples.window(batch_size).flat_map(picked)


@dataclasses.dataclass(frozen=True)
class Order:
    """In which order an epoch visits the examples, and from where on.

    Attributes:
        seed: of all epochs.
        epoch: number of the epoch, from 0.
        start: examples to leave out.
        shuffle: whether the order changes from epoch to epoch.
        shuffle_buffer_size: entries that a stream is shuffled through.
        sampling: how often an example comes: "uniform" (each once), "class_balanced"
            or "per_identity", see the functions of this module.
        images_per_identity: for sampling "per_identity".
        batch_size: images of a batch over all replicas, for "per_identity" and `part`.
        part: the part of each batch to read; None: all examples, without padding.
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
        """Returns the indices of an epoch from the start on, int64 [count - start].

        Args:
            count: number of examples.
            labels: returns the label of each example, int [count].
        """
        random = np.random.default_rng([self.seed, self.epoch])
        if not self.shuffle:
            indices = np.arange(count, dtype=np.int64)
        elif self.sampling == "uniform":
            indices = random.permutation(count)
        elif self.sampling == "class_balanced":
            indices = class_balanced(labels(), random)
        else:
            indices = per_identity(
                labels(), random, self.images_per_identity, self.batch_size
            )
        return indices[self.start :]

    def examples(self, total: int) -> int:
        """Examples that are read, padding included, if `total` are left."""
        if self.part is None:
            return total
        return -(-total // self.batch_size) * self.part.size

    def places(self, numbers: tf.Tensor, total: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns which of the `total` examples that are left are read.

        Args:
            numbers: int64 [n], of the examples that are read, from 0.
            total: examples that are left of the epoch.

        Returns:
            their places after the start, int64 [n], and weights, float32 [n].
        """
        if self.part is None:
            return numbers, tf.ones_like(numbers, tf.float32)
        begin = numbers // self.part.size * self.batch_size
        count = tf.minimum(total - begin, self.batch_size)
        position = self.part.first + numbers % self.part.size
        return begin + position % count, tf.cast(position < count, tf.float32)


# The order of the files.
FILE_ORDER = Order(shuffle=False)


def class_balanced(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draws every class equally often, give or take one, in random order.

    Images of a small class are repeated, each as often as the others of its class, give
    or take one; of a large class, each epoch shows another random part.

    Args:
        labels: int [n].
        random: of the epoch.

    Returns:
        indices, int64 [n].
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
    """Draws N images of a class one after the other, classes in random order.

    A batch of P * N images so holds N images of each of P classes. A class of m images
    gets ceil(m / N) such groups, spread over the epoch; a group that is not full is
    filled up with images of the same class. The surplus is cut off at the end of the
    epoch, at random groups. With `batch_size`, groups change places until no class
    comes twice in a batch, as far as the classes allow it.

    Args:
        labels: int [n].
        random: of the epoch.
        images_per_identity: N.
        batch_size: P * N; None leaves a class that comes twice where it is.

    Returns:
        indices, int64 [n].

    Raises:
        ValueError: N is not positive, or `batch_size` is not a multiple of it.
    """
    if images_per_identity < 1 or (batch_size or 0) % images_per_identity:
        raise ValueError(
            "The global batch must be a positive multiple of images_per_identity. "
            f"Received: {batch_size=}, {images_per_identity=}."
        )
    grouped, firsts, sizes = _grouped(labels, random)
    groups = -(-sizes // images_per_identity)
    owner = np.repeat(np.arange(len(sizes)), groups)
    number = _within(groups)
    # Group j of J of a class falls at random into the j-th of J parts of the epoch.
    moments = (number + random.random(len(number), np.float32)) / groups[owner]
    turn = np.argsort(moments)
    if batch_size is not None:
        _separate(turn, owner, batch_size // images_per_identity, random)
    turn = turn[: -(-len(grouped) // images_per_identity)]
    owner, number = owner[turn], number[turn]
    places = number[:, np.newaxis] * images_per_identity
    places = places + np.arange(images_per_identity)
    places %= sizes[owner][:, np.newaxis]
    places += firsts[owner][:, np.newaxis]
    return grouped[places.reshape(-1)[: len(grouped)]]


def _within(counts):
    """0, 1, ... counts[0] - 1, 0, 1, ... counts[1] - 1 and so on."""
    firsts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(firsts, counts)


def _grouped(labels, random):
    """Indices by class, in random order within a class; first place and size of each.

    Classes without examples are left out.
    """
    indices = random.permutation(len(labels))
    indices = indices[np.argsort(labels[indices], kind="stable")]
    ordered = labels[indices]
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return indices, firsts, np.diff(np.append(firsts, len(labels)))


def _separate(turn, owner, per_batch, random):
    """Swaps groups, in place, until each batch's groups have different owners."""
    owners = owner[turn]
    count = len(turn)
    batch = np.arange(count) // per_batch
    by_class = np.lexsort((owners, batch))
    twice = (owners[by_class][1:] == owners[by_class][:-1]) & (
        batch[by_class][1:] == batch[by_class][:-1]
    )
    places = by_class[1:][twice].tolist()
    # Bounded work: classes larger than their share of a batch never find a place.
    tries = min(max(400_000 // max(len(places), 1), 4), 64)
    for place in places:
        first = place - place % per_batch
        mine = owners[first : first + per_batch]
        for other in random.integers(0, count, tries).tolist():
            start = other - other % per_batch
            theirs = owners[start : start + per_batch]
            if owners[other] in mine or owners[place] in theirs:
                continue
            turn[[place, other]] = turn[[other, place]]
            owners[[place, other]] = owners[[other, place]]
            break
