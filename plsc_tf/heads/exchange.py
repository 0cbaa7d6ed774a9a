"""How the replicas of a head talk to each other in a step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import RowSplit


class ShardExchange:
    """Between replicas that each hold some of the classes.

    Every replica works on the examples of the global batch.

    Args:
        split: the `RowSplit` of the classes.
    """

    def __init__(self, split: RowSplit) -> None:
        self.split = split

    def local_classes(self) -> tuple:
        """(first class of the calling replica, number of its classes)."""
        replica = collectives.replica_id()
        return self.split.first(replica), self.split.size(replica)

    def gather(self, values: Any) -> Any:
        """`[batch, ...]` of the examples that a replica works on; also of a list."""
        return collectives.all_gather(values)

    def gather_rest(self, values: Any) -> Any:
        """What `gather` returned, of the examples of the global batch."""
        return values

    def total(self, value: Any) -> tf.Tensor:
        """Sum over all replicas that share the classes."""
        return collectives.all_sum(value)

    def own_total(
        self, gradients: tf.Tensor, above: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The replica's examples of what is summed over all that share the classes.

        Args:
            gradients: `[batch, emb]`.
            above: int32 `[batch]`, or None; a column next to the gradients on its way.
        """
        if above is None:
            return collectives.reduce_scatter(gradients), None
        column = tf.cast(above, gradients.dtype)[:, None]
        joined = tf.concat([gradients, column], axis=1)
        own = collectives.reduce_scatter(joined)
        return own[:, :-1], tf.cast(own[:, -1], above.dtype)

    def own(self, value: Any) -> tf.Tensor:
        """The replica's examples of a gathered `[batch, ...]`."""
        return collectives.own_slice(value)


class NoExchange:
    """For replicas that each hold all classes and work on their own examples.

    The methods are those of `ShardExchange`.

    Args:
        num_classes: number of classes.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self.gather = self.total = self.own = _unchanged

    def local_classes(self) -> tuple[int, int]:
        """All classes."""
        return 0, self.num_classes

    def own_total(
        self, gradients: tf.Tensor, above: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Both as they are."""
        return gradients, above

    def gather_rest(self, values: Any) -> Any:
        """`[batch, ...]` of the examples of the global batch."""
        return collectives.all_gather(values)


def _unchanged(value):
    return value
