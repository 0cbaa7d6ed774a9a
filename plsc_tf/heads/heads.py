"""Contains the two heads: classes split over the replicas, or replicated."""

import dataclasses
import math

import keras

from plsc_tf.heads.base import Head
from plsc_tf.parallel import packing
from plsc_tf.parallel.rows import ReplicatedRows, ShardedRows
from plsc_tf.requirements import require, require_one_of


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ShardedHead(Head):
    """A head whose classes are split across the replicas, `num_classes / n` on each.

    PLSC calls it dist_arcface and dist_softmax. The replicas gather each other's
    embeddings, compute the logits of their own classes, and exchange a few numbers per
    example. Logits, weights and weight gradients are never sent. With one replica, the
    only shard is the whole head. Classes are processed in tiles (see
    `plsc_tf.heads.tiled_softmax`), and each tile is updated as soon as its gradient is
    known.

    Example:
        ```python
        head = plsc_tf.ShardedHead(num_classes=85_742, loss=plsc_tf.ARCFACE)
        ```

    Args:
        num_classes: number of classes.
        sample_rate: share of a replica's classes used in a step, in (0, 1]: all true
            classes of the global batch and a random sample of the others (Partial FC,
            arXiv:2010.05222; arcface_torch: sample_rate).
        tile_rows: number of classes in a tile, or None to choose it automatically.
        weight_dtype: "float32", or "bfloat16", "int8" or "float8" to store the weights
            in 16 or 8 bits, see `plsc_tf.parallel.packing`.
        **options: see `plsc_tf.heads.base.Head`.

    Raises:
        ValueError: an argument is out of range or excludes another one.
    """

    sharded = True

    sample_rate: float = 1.0
    tile_rows: int | None = None  # type: ignore[assignment]
    weight_dtype: str = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        sample_rate, tile_rows = self.sample_rate, self.tile_rows
        rule = "sample_rate must be in (0, 1], 1 for all classes"
        require(0 < sample_rate <= 1, rule, sample_rate=sample_rate)
        rule = "tile_rows must be positive, or None to choose it automatically"
        require(tile_rows is None or tile_rows >= 1, rule, tile_rows=tile_rows)
        rule = "Label smoothing needs all classes, but Partial FC samples them"
        advice = "Set label_smoothing=0 or sample_rate=1"
        given = {"sample_rate": sample_rate, "label_smoothing": self.label_smoothing}
        require(sample_rate == 1 or not self.label_smoothing, rule, advice, **given)
        require_one_of(packing.DTYPES, weight_dtype=self.weight_dtype)

    def _make_rows(self, strategy, initial_rows, name):
        given = {"tile_rows": self.layout.rows_per_tile, "sparse": self.sample_rate < 1}
        given["dtype"] = packing.DTYPES[self.weight_dtype]
        return ShardedRows(strategy, initial_rows, self.num_classes, name, **given)


class DenseHead(Head):
    """A head with all classes on every replica (PLSC loss types: arcface, softmax).

    Use it for few classes or as a reference for `ShardedHead`. Its gradients are summed
    over the replicas, as the backbone's gradients are. For the arguments, see
    `plsc_tf.heads.base.Head`.
    """

    @property
    def variables_replicated(self) -> list[keras.Variable]:
        """The mirrored weights, which are trained like the backbone's weights."""
        return [rows.variable for rows in self.arrays().values()]

    def _make_rows(self, strategy, initial_rows, name):
        with strategy.scope():
            variable = keras.Variable(initial_rows(0, self.num_classes), name=name)
            return ReplicatedRows(variable)


def describe(head: Head) -> str:
    """Returns one line on the head's rows, shards, parameters and loss."""
    arrays = head.arrays()
    rows, *sizes = arrays["weight"].shape
    size, place = " × ".join(map(str, sizes)), "whole on every replica"
    if head.sharded:
        shards, tile = arrays["weight"].split.num_shards, head.layout.rows_per_tile
        place = f"in {shards} shard(s), in tiles of {tile:,}"
    parameters = sum(math.prod(array.shape) for array in arrays.values())
    scale = f", scale={head.scale:g}" if "bias" not in arrays else ""
    text = f"Head: {type(head).__name__}, {rows:,} rows × {size}, {place}"
    return f"{text}; {parameters:,} parameters; loss={head.loss}{scale}"
