"""Estimates the bytes that a head holds, uses and sends in a step, from its layout.

docs/planner.md explains the formulas, and docs/distributed.md has a table of the
exchanged data. `benchmarks.planner` compares the formulas with measured memory.
"""

import dataclasses
import math

from plsc_tf.heads.layout import HeadLayout, kept_tiles, tile_sizes
from plsc_tf.parallel.rows import FILLED_ROWS

# Bytes per number; a label takes 8.
FLOAT, HALF = 4, 2
# Number of tensors [tile, batch] that exist at once in the second pass: products,
# errors and temporaries. The first pass has one fewer.
LOGIT_TENSORS = 3
PLAIN_LOGIT_TENSORS = 6
# Number of tensors [batch, emb], such as gathered embeddings and summed gradients.
BATCH_TENSORS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadLoad(HeadLayout):
    """The quantities that determine a head's memory in training.

    Attributes:
        global_batch: number of examples per step over all replicas.
        parts: number of parts of each replica's batch (gradient accumulation).
        row_bytes: bytes of one class's weights, including its bias or all its centers.
        wide_bytes: the same in the type in which they are computed; 0 if it is the
            type in which they are stored.
        slot_bytes: bytes of the optimizer's slots for one class.
        logits_bytes: maximum bytes of kept logits per replica.
        half: whether the products' operands, and the logits, are half precision.
        clipped: whether the gradients are clipped to a norm.
        labels: number of labels per example; with mixup or cutmix, each example is
            processed once per label.
    """

    global_batch: int
    parts: int = 1
    row_bytes: int = 0
    wide_bytes: int = 0
    slot_bytes: int = 0
    logits_bytes: float = 1024e6
    half: bool = False
    clipped: bool = False
    labels: int = 1

    @property
    def narrow(self) -> bool:
        """True if weights are stored in a narrower type than they are computed in."""
        return self.row_bytes < self.wide_bytes

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile's weights in the type in which they are computed."""
        return self.rows_per_tile * (self.wide_bytes or self.row_bytes)

    @property
    def working_rows(self) -> int:
        """Number of a replica's classes that are used in a step."""
        if self.sample_rate == 1:
            return self.rows
        # All true classes are used, even if they exceed the sample size.
        return min(self.rows, max(self.sampled_rows, self.labels * self.global_batch))

    @property
    def rows_per_tile(self) -> int:
        """Number of classes in a tile."""
        if self.sharded and self.working_rows > self.sampled_rows:
            return self.working_rows  # a sample without a static size is one tile
        return super().rows_per_tile

    @property
    def tiles(self) -> list[int]:
        """Number of classes in each of a replica's tiles."""
        return tile_sizes(self.working_rows, self.rows_per_tile)

    @property
    def own_batch(self) -> int:
        """Number of a replica's examples, including padding."""
        return -(-self.global_batch // (self.replicas * self.parts)) * self.parts

    @property
    def batch(self) -> int:
        """Number of examples that a replica's head processes, including padding."""
        return self.labels * self.own_batch * (self.replicas if self.sharded else 1)

    @property
    def columns(self) -> int:
        """Number of products per class that a replica computes at a time.

        There is one product for each example and each center of the class.
        """
        examples = self.batch if self.sharded else self.batch // self.parts
        return self.sub_centers * examples

    @property
    def kept_tiles(self) -> int:
        """Number of tiles whose logits are kept; other tiles' logits are recomputed."""
        if self.parts > 1 and self.sharded:
            return 0
        return kept_tiles(self.tiles, self.logit_row_bytes, self.logits_bytes)

    @property
    def logit_row_bytes(self) -> int:
        """Bytes of the logits of one class."""
        return self.columns * (HALF if self.half else FLOAT)


def held(load: HeadLoad) -> dict[str, int]:
    """Returns `{item: bytes}` held throughout a step on the fullest replica."""
    return {
        "head weights": load.rows * load.row_bytes,
        "head slots": load.rows * load.slot_bytes,
        "kept logits": sum(load.tiles[: load.kept_tiles]) * load.logit_row_bytes,
        "gathered batch": BATCH_TENSORS * load.batch * load.embedding_size * FLOAT,
        # The rows as drawn, in the hash table that finds duplicates, and sorted.
        "sampling": 72 * load.working_rows if load.sample_rate < 1 else 0,
    }


def first_pass(load: HeadLoad) -> int:
    """Returns the temporary bytes of each tile in the first pass."""
    columns = load.columns // (load.parts if load.sharded else 1)
    tensors = _logit_tensors(load) - 1
    copied = load.sample_rate < 1 or load.narrow
    return _tile(load, columns, tensors) + (load.tile_bytes if copied else 0)


def second_pass(load: HeadLoad) -> int:
    """Returns the temporary bytes of each tile in the second pass.

    They hold the tile's products, its errors and their reductions, and its weight
    gradient. A compiled update happens in place.
    """
    slots = math.ceil(load.slot_bytes / (load.wide_bytes or load.row_bytes))
    if not load.sharded:
        gradients = 2  # the gradient, and the multiple of w to subtract
    elif load.sample_rate < 1:
        # Old and new rows of weights and slots are gathered and scattered.
        gradients = 3 + 2 * slots
    else:
        gradients = 1 if load.compiled else 3 + slots
    clipping = 2 * FLOAT * load.batch**2 if load.clipped else 0
    tile = _tile(load, load.columns, _logit_tensors(load))
    return tile + load.tile_bytes * (gradients + load.narrow) + clipping


def making(load: HeadLoad) -> tuple[int, int]:
    """Returns (device bytes, NumPy's host bytes) used to create the weights."""
    device = load.rows * load.row_bytes
    wide = load.wide_bytes or load.row_bytes
    if not load.sharded:
        return device, load.rows * wide
    # Variables are created with zeros, which TensorFlow copies, and filled in parts. On
    # the host, the first part, the next part and its tensor exist at once.
    rows = load.rows if load.sample_rate < 1 else load.rows_per_tile
    return device + rows * load.row_bytes, 3 * min(load.rows, FILLED_ROWS) * wide


def work(load: HeadLoad) -> tuple[float, float]:
    """Returns (floating-point operations, bytes of memory traffic) of a replica's step.

    The three products, two passes over the logits, and the update read what they need
    from memory and write their results to it.
    """
    weights = load.working_rows * load.row_bytes
    slots = load.working_rows * load.slot_bytes
    logits = load.working_rows * load.columns * (1 if load.sharded else load.parts)
    products = 4 - sum(load.tiles[: load.kept_tiles]) / load.working_rows
    moved = (products + 4) * logits * (HALF if load.half else FLOAT)
    moved += (products + 3) * weights + 2 * slots
    return products * 2 * logits * load.embedding_size, moved


def _logit_tensors(load):
    return LOGIT_TENSORS if load.compiled else PLAIN_LOGIT_TENSORS


def _tile(load, columns, tensors):
    """Returns bytes of tensors `[tile, columns]` and half-precision operands."""
    # Kept products are counted in `held`.
    tensors -= load.kept_tiles == len(load.tiles)
    if load.half and load.device_kind == "GPU":
        # The tile's weights are cast once, and all passes write half precision.
        return load.rows_per_tile * tensors * columns * HALF + load.tile_bytes // 2
    size = load.rows_per_tile * columns * FLOAT
    return tensors * size + (load.tile_bytes + size if load.half else 0)


# Columns added to an embedding: the example's weight, its norm, and two for its label.
COLUMNS_BESIDE = 4
# Numbers that are summed at the end of a step: NaN or infinity, the workers' two votes,
# and the loss; the accuracies are added to them.
LAST_NUMBERS = 4


@dataclasses.dataclass(frozen=True)
class Collective:
    """One or more collectives of the same kind.

    Attributes:
        name: name of the exchanged data.
        kind: "all-gather" or "all-reduce".
        bytes: bytes of the result for an all-gather, of a replica's input otherwise;
            the total over all `count` collectives.
        sent: total bytes that each replica sends in a ring.
        count: number of collectives.
    """

    name: str
    kind: str
    bytes: int
    sent: int
    count: int = 1


def collectives(
    load: HeadLoad, gradient_bytes: int, *, smoothing: bool = False, ranks: int = 0
) -> list[Collective]:
    """Lists the collectives that the replicas run in a step.

    The norms of gradient clipping, a few more numbers in the last sum, and the data for
    updating a replicated head's loss function are not counted. The workers of a cluster
    on CPUs send half as much for the gradients of the embeddings, by a reduce-scatter.

    Args:
        load: the `HeadLoad`.
        gradient_bytes: bytes of the gradients of the backbone's trainable weights, in
            the type in which they are sent.
        smoothing: whether label smoothing is used.
        ranks: number of training accuracies to compute.

    Returns:
        list of `Collective`.
    """
    replicas, found = load.replicas, []
    batch = load.labels * load.own_batch * replicas
    share = (replicas - 1) / replicas

    def add(name, kind, size, count=1):
        sent = math.ceil((2 if kind == "all-reduce" else 1) * share * size)
        found.append(Collective(name, kind, size, sent, count))

    if load.sharded and load.sample_rate < 1:
        add("labels and examples", "all-gather", batch * 3 * FLOAT)
    else:
        add("examples", "all-reduce", FLOAT)
    parts = load.parts  # each part of a batch runs its own collectives
    if load.sharded:
        columns = load.embedding_size + COLUMNS_BESIDE
        add("embeddings and labels", "all-gather", batch * columns * FLOAT, parts)
        add("true classes' scores", "all-reduce", batch * FLOAT, parts)
        columns = 3 if smoothing else 2
        size = replicas * batch * columns * FLOAT
        add("statistics", "all-gather", size, parts)
        # Ranks are sent as an extra column of the gradients.
        columns = load.embedding_size + (1 if ranks else 0)
        add("embeddings' gradients", "all-reduce", batch * columns * FLOAT, parts)
    else:
        gradient_bytes += load.num_classes * load.row_bytes
    add("gradients of mirrored weights", "all-reduce", gradient_bytes)
    add("votes, loss, accuracies", "all-reduce", (LAST_NUMBERS + ranks) * FLOAT)
    return found
