"""Contains the collectives that a head's replicas run in a step."""

from typing import Any

import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import RowSplit


class Exchange:
    """Runs the collectives between a head's replicas.

    If each replica holds a part of the classes, it processes the examples of the global
    batch. If each replica holds all classes, it processes only its own examples.

    Args:
        num_classes: number of classes.
        split: the `RowSplit` of the classes, or None if each replica holds all.
    """

    def __init__(self, num_classes: int, split: RowSplit | None) -> None:
        self.num_classes = num_classes
        self.split = split

    def local_classes(self) -> tuple:
        """Returns (first class of the calling replica, number of its classes)."""
        if self.split is None:
            return 0, self.num_classes
        replica = collectives.replica_id()
        return self.split.first(replica), self.split.size(replica)

    def gather(self, values: Any) -> Any:
        """Gathers `[batch, ...]` of all examples that the replica processes.

        Lists of tensors are accepted as well.
        """
        return values if self.split is None else collectives.all_gather(values)

    def gather_global(self, values: Any) -> Any:
        """Gathers `[global_batch, ...]` from the result of `gather`."""
        return collectives.all_gather(values) if self.split is None else values

    def total(self, value: Any) -> Any:
        """Sums a value over all replicas among which the classes are split."""
        return value if self.split is None else collectives.all_sum(value)

    def own(self, value: Any) -> Any:
        """Returns the slice of a gathered `[batch, ...]` for the replica's examples."""
        return value if self.split is None else collectives.own_slice(value)

    def own_total(
        self, gradients: tf.Tensor, above: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Sums over the replicas and returns the slices for the replica's examples.

        Args:
            gradients: `[batch, emb]`.
            above: int64 `[batch]`, or None; sent as an extra column of the gradients.
        """
        if self.split is None:
            return gradients, above
        if above is None:
            return collectives.reduce_scatter(gradients), None
        column = tf.cast(above, gradients.dtype)[:, None]
        own = collectives.reduce_scatter(tf.concat([gradients, column], axis=1))
        return own[:, :-1], tf.cast(own[:, -1], above.dtype)
