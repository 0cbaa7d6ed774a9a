"""Collectives between the replicas of a head in a step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import RowSplit


class Exchange:
    """Collectives between the replicas of a head.

    Replicas that each hold some of the classes work on the examples of the global
    batch; replicas that hold all of them work on their own examples.

    Args:
        num_classes: number of classes.
        split: the `RowSplit` of the classes; None where every replica holds all.
    """

    def __init__(self, num_classes: int, split: RowSplit | None) -> None:
        self.num_classes = num_classes
        self.split = split

    def local_classes(self) -> tuple:
        """(first class of the calling replica, number of its classes)."""
        if self.split is None:
            return 0, self.num_classes
        replica = collectives.replica_id()
        return self.split.first(replica), self.split.size(replica)

    def gather(self, values: Any) -> Any:
        """`[batch, ...]` of the examples that a replica works on; also of a list."""
        return values if self.split is None else collectives.all_gather(values)

    def gather_rest(self, values: Any) -> Any:
        """What `gather` returned, of the examples of the global batch."""
        return collectives.all_gather(values) if self.split is None else values

    def total(self, value: Any) -> Any:
        """Sum over all replicas that share the classes."""
        return value if self.split is None else collectives.all_sum(value)

    def own(self, value: Any) -> Any:
        """The replica's examples of a gathered `[batch, ...]`."""
        return value if self.split is None else collectives.own_slice(value)

    def own_total(
        self, gradients: tf.Tensor, above: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The replica's examples of what is summed over all that share the classes.

        Args:
            gradients: `[batch, emb]`.
            above: int32 `[batch]`, or None; a column next to the gradients on its way.
        """
        if self.split is None:
            return gradients, above
        if above is None:
            return collectives.reduce_scatter(gradients), None
        column = tf.cast(above, gradients.dtype)[:, None]
        own = collectives.reduce_scatter(tf.concat([gradients, column], axis=1))
        return own[:, :-1], tf.cast(own[:, -1], above.dtype)
