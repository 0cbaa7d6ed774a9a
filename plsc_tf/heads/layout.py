"""Computes how a head is split into shards and tiles, from its shape alone.

The head and the memory planner both use this module, so they always agree.
"""

import dataclasses
import itertools
import math

from plsc_tf.parallel.packing import DTYPES, is_packed
from plsc_tf.parallel.rows import RowSplit
from plsc_tf.requirements import require

# Bytes of weights in a tile. On CPUs, a tile, its gradient and its slots should fit in
# the last-level cache until the update; on GPUs, larger tiles keep the kernels busy.
TILE_BYTES = {"CPU": 8e6, "GPU": 256e6}
# Shorter embeddings don't get more rows per tile, because the logits would dominate.
SHORTEST = 128
# Each tile is a node of the graph. More than the first number take longer to build than
# they save, so tiles are larger then, up to a size: on CPUs, glibc gets larger blocks
# of memory from the system each time, and all their pages are cleared. More than the
# second number take too long, whatever they save.
FEW_TILES, MOST_TILES = 40, 1600
LARGEST_TILE_BYTES = {"CPU": 32e6, "GPU": 1024e6}
# Compiling takes longer than it saves for tiles with fewer rows.
COMPILE_ROWS = 2048


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadLayout:
    """The shape of a head, and its division into shards and tiles.

    Attributes:
        num_classes: number of classes in the whole head.
        embedding_size: length of the embeddings.
        replicas: number of replicas.
        sharded: whether each replica holds only its share of the classes.
        sample_rate: share of a replica's classes used in a step (Partial FC).
        tile_rows: number of classes in a tile, or None to choose it automatically.
        sub_centers: number of centers per class.
        device_kind: "CPU" or "GPU", on which the replicas run.
        weight_dtype: name of the dtype in which weights are stored, as in
            `plsc_tf.parallel.packing`.
    """

    num_classes: int
    embedding_size: int
    replicas: int
    sharded: bool = True
    sample_rate: float = 1.0
    tile_rows: int | None = None
    sub_centers: int = 1
    device_kind: str = "CPU"
    weight_dtype: str = "float32"

    def check(self) -> None:
        """Raises ValueError if a replica has no classes or a tile is too large."""
        if not self.sharded:
            return
        RowSplit(self.num_classes, self.replicas)
        given, most = self.tile_rows, self.sampled_rows
        rule = f"tile_rows must be at most {most}, with {self.replicas} replica(s)"
        advice = "Leave it out to choose it automatically"
        require(given is None or given <= most, rule, advice, tile_rows=given)

    @property
    def rows(self) -> int:
        """Number of classes on the replica that holds the most."""
        if not self.sharded:
            return self.num_classes
        return -(-self.num_classes // self.replicas)

    @property
    def sampled_rows(self) -> int:
        """Number of its classes in a step, if the batch has no more true classes."""
        return sample_size(self.rows, self.sample_rate)

    @property
    def rows_per_tile(self) -> int:
        """Number of classes in a tile."""
        if not self.sharded:
            return self.rows
        row_size = self.sub_centers * self.embedding_size
        packed = is_packed(DTYPES[self.weight_dtype])
        sizes = self.sampled_rows, row_size, self.device_kind
        chosen = self.tile_rows or even_tile_rows(*sizes, packed=packed)
        return min(self.sampled_rows, chosen)

    @property
    def compiled(self) -> bool:
        """True if tiles are large enough for XLA to save time."""
        return self.sub_centers * self.rows_per_tile >= COMPILE_ROWS


def sample_size(rows: int, rate: float) -> int:
    """Returns the rows sampled in a step, if the batch has no more true classes."""
    return max(1, int(rate * rows))


def tile_sizes(rows: int, rows_per_tile: int) -> list[int]:
    """Returns the number of rows of each tile."""
    return [min(rows_per_tile, rows - start) for start in range(0, rows, rows_per_tile)]


def kept_tiles(sizes: list, row_bytes: int, limit_bytes: float) -> int:
    """Returns how many tiles, from the first, keep their logits for the second pass.

    Args:
        sizes: rows of each tile; an unknown size is None and counts as 0.
        row_bytes: bytes of the logits of one row.
        limit_bytes: maximum bytes of all kept logits.
    """
    totals = itertools.accumulate((size or 0) * row_bytes for size in sizes)
    return sum(total <= limit_bytes for total in totals)


def even_tile_rows(
    rows: int, row_size: int, device_kind: str, *, packed: bool = False
) -> int:
    """Chooses the rows of a tile: about `TILE_BYTES`, or more to limit the tile count.

    All tiles have the same size if possible, because each size is traced and compiled
    separately.

    Args:
        rows: number of rows that a replica processes in a step.
        row_size: number of weights in a row.
        device_kind: "CPU" or "GPU".
        packed: whether the rows are stored in 8 bits. Their update has so many
            temporary tensors that larger tiles are slower on CPUs.
    """
    row_bytes = 4 * max(row_size, SHORTEST)
    fitting = TILE_BYTES[device_kind] / row_bytes
    if packed and device_kind == "CPU":
        fitting = max(0.6 * fitting, 1.5 * COMPILE_ROWS)
    else:
        most = LARGEST_TILE_BYTES[device_kind] / row_bytes
        fitting = min(max(fitting, rows / FEW_TILES), most)
    fitting = max(fitting, rows / MOST_TILES)
    if rows <= 1.5 * fitting:
        return rows
    near = range(math.ceil(rows / (1.5 * fitting)), math.ceil(1.5 * rows / fitting))
    exact = [count for count in near if rows % count == 0]
    count = min(exact or near, key=lambda count: abs(count - rows / fitting))
    return -(-rows // count)
