"""How a head is cut into shards and tiles, from its shape alone.

The head is built by it and the memory planner computes with it, so they cannot differ.
"""

import dataclasses
import itertools
import math

import tensorflow as tf

from plsc_tf.parallel.rows import RowSplit

# Weights of a tile. On CPUs a tile, its gradient and its slots should stay in the
# last cache between product and update; on GPUs a kernel should have enough to do.
TILE_BYTES = {"CPU": 8e6, "GPU": 64e6}
# Shorter embeddings make no larger tiles: their logits would be what is large.
SHORTEST = 128
# The graph holds a node for each tile: hundreds take longer to build than they save.
MOST_TILES = 40
# Compiling takes longer than it saves with fewer rows in a tile.
COMPILE_ROWS = 2048


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadLayout:
    """Shards and tiles of a head.

    Attributes:
        num_classes: of the whole head.
        embedding_size: length of the embeddings.
        replicas: number of replicas.
        sharded: whether each replica holds only its share of the classes.
        sample_rate: share of a replica's classes in a step (Partial FC).
        tile_rows: classes of a tile; None to choose it.
        sub_centers: rows of weights per class.
    """

    num_classes: int
    embedding_size: int
    replicas: int
    sharded: bool = True
    sample_rate: float = 1.0
    tile_rows: int | None = None
    sub_centers: int = 1

    def check(self) -> None:
        """Raises ValueError for a replica without classes, or for too large a tile."""
        if not self.sharded:
            return
        RowSplit(self.num_classes, self.replicas)
        if self.tile_rows is not None and self.tile_rows > self.sampled_rows:
            raise ValueError(
                "A tile cannot be larger than what a replica works on, "
                f"{self.sampled_rows} of {self.num_classes} classes on {self.replicas} "
                f"replica(s). Received: tile_rows={self.tile_rows}; leave it out to "
                "have it chosen."
            )

    @property
    def rows(self) -> int:
        """Classes of the replica that holds most."""
        if not self.sharded:
            return self.num_classes
        return -(-self.num_classes // self.replicas)

    @property
    def sampled_rows(self) -> int:
        """Classes of that replica in a step, if the batch is no larger."""
        return sample_size(self.rows, self.sample_rate)

    @property
    def rows_per_tile(self) -> int:
        """Classes that a replica works on at a time."""
        if not self.sharded:
            return self.rows
        row_size = self.sub_centers * self.embedding_size
        chosen = self.tile_rows or even_tile_rows(self.sampled_rows, row_size)
        return min(self.sampled_rows, chosen)

    @property
    def compiled(self) -> bool:
        """Whether tiles are large enough for XLA to pay."""
        return self.sub_centers * self.rows_per_tile >= COMPILE_ROWS


def sample_size(rows: int, rate: float) -> int:
    """Rows in a step of Partial FC, unless the batch has more true classes."""
    return max(1, int(rate * rows))


def tile_sizes(rows: int, rows_per_tile: int) -> list[int]:
    """Rows of each tile."""
    return [min(rows_per_tile, rows - start) for start in range(0, rows, rows_per_tile)]


def kept_tiles(sizes: list, row_bytes: int, limit_bytes: float) -> int:
    """Number of first tiles whose logits are kept for the second pass.

    Args:
        sizes: rows of each tile; None if unknown beforehand, which counts as 0.
        row_bytes: logits of one row.
        limit_bytes: for all that are kept.
    """
    totals = itertools.accumulate((size or 0) * row_bytes for size in sizes)
    return sum(total <= limit_bytes for total in totals)


def even_tile_rows(rows: int, row_size: int) -> int:
    """Rows of a tile: about `TILE_BYTES`, more where there would be too many tiles.

    All tiles are alike where that is possible: every other size is traced and
    compiled on its own.

    Args:
        rows: that a replica works on.
        row_size: numbers of a row.
    """
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    row_bytes = 4 * max(row_size, SHORTEST)
    fitting = max(TILE_BYTES[kind] / row_bytes, rows / MOST_TILES)
    if rows <= 1.5 * fitting:
        return rows
    near = range(math.ceil(rows / (1.5 * fitting)), math.ceil(1.5 * rows / fitting))
    exact = [count for count in near if rows % count == 0]
    wanted = rows / fitting
    count = min(exact or near, key=lambda count: abs(count - wanted))
    return -(-rows // count)
