"""The part of each global batch that one of several workers reads."""

from __future__ import annotations

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Part:
    """Positions [first, last) of each global batch, which is padded to a fixed size.

    Padded position p shows example p % count of a batch of `count` examples, with
    weight 0 where p >= count: as `plsc_tf.training.batching.pad` has it.

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
                "A part needs 0 <= first < last <= padded. "
                f"Received: first={self.first}, last={self.last}, "
                f"padded={self.padded}."
            )

    @property
    def size(self) -> int:
        """Examples of this part of a batch."""
        return self.last - self.first

    def places(
        self, numbers: tf.Tensor, batch_size: int, total: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Says which examples of an epoch this part shows, batch after batch.

        Args:
            numbers: int64 [n], of the examples of this part, counted through batches.
            batch_size: examples of a full global batch.
            total: examples of the epoch.

        Returns:
            their places in the epoch, int64 [n], and weights, float32 [n].
        """
        begin = numbers // self.size * batch_size
        count = tf.minimum(total - begin, batch_size)
        position = self.first + numbers % self.size
        return begin + position % count, tf.cast(position < count, tf.float32)

    def of_stream(self, examples: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        """Picks what this part shows from a data set of all examples.

        How many there are need not be known. Holds one global batch of them.

        Args:
            examples: yields tuples, one for each example.
            batch_size: examples of a full global batch.

        Returns:
            tf.data.Dataset of (example, weight, a float32 scalar).
        """

        def picked(*columns):
            batch = tf.data.Dataset.zip(columns)
            count = batch.cardinality()
            weights = tf.cast(
                tf.range(self.first, self.last, dtype=tf.int64) < count, tf.float32
            )
            shown = batch.repeat().skip(self.first).take(self.size)
            return tf.data.Dataset.zip(
                (shown, tf.data.Dataset.from_tensor_slices(weights))
            )

        picked = tf.autograph.experimental.do_not_convert(picked)
        return examples.window(batch_size).flat_map(picked)
