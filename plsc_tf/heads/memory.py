"""Bytes that a head holds, works with and sends in a step, from its layout.

docs/planner.md explains the formulas, docs/distributed.md has the table of what is
sent; `benchmarks.planner` compares the formulas with measured memory.
"""

from __future__ import annotations

import dataclasses
import math

from plsc_tf.heads.layout import HeadLayout, kept_tiles, tile_sizes
from plsc_tf.parallel.rows import LARGE_TILE

# Bytes of a number; labels have 8.
FLOAT = 4
# Tensors [tile, batch] that exist at the same time: products, what they become, and
# temporaries; the errors of the second pass have one more than the first pass.
LOGIT_TENSORS = 3
PLAIN_LOGIT_TENSORS = 6
# Tensors [batch, emb]: gathered, normalized, pulled, summed gradients and the like.
BATCH_TENSORS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadLoad(HeadLayout):
    """What the memory of a head in training depends on.

    Attributes:
        global_batch: examples per step over all replicas.
        parts: that each replica's batch is cut into (gradient accumulation).
        row_bytes: weights of one class, its bias or all its centers included.
        slot_bytes: the optimizer's slots of one class.
        logits_bytes: limit of the logits that are kept, per replica.
        half: whether the products' operands are cast to half precision.
        clipped: whether the gradients are clipped to a norm.
        labels: per example, which meets the classes once with each (mixup, cutmix).
    """

    global_batch: int
    parts: int = 1
    row_bytes: int = 0
    slot_bytes: int = 0
    logits_bytes: float = 1024e6
    half: bool = False
    clipped: bool = False
    labels: int = 1

    @property
    def working_rows(self) -> int:
        """Classes of a replica that take part in a step."""
        if self.sample_rate == 1:
            return self.rows
        # All true classes take part, however small the sample.
        return min(self.rows, max(self.sampled_rows, self.labels * self.global_batch))

    @property
    def rows_per_tile(self) -> int:
        """Classes that a replica works on at a time."""
        if self.sharded and self.working_rows > self.sampled_rows:
            return self.working_rows  # a sample of unknown size is one tile
        return super().rows_per_tile

    @property
    def tiles(self) -> list[int]:
        """Classes of each tile of a replica."""
        return tile_sizes(self.working_rows, self.rows_per_tile)

    @property
    def own_batch(self) -> int:
        """A replica's examples, the padding of the batch included."""
        return -(-self.global_batch // (self.replicas * self.parts)) * self.parts

    @property
    def batch(self) -> int:
        """Examples that meet a replica's classes in a step, the padding included."""
        return self.labels * self.own_batch * (self.replicas if self.sharded else 1)

    @property
    def columns(self) -> int:
        """Products of a class that a replica computes at a time.

        One for each example, and with several centers per class one for each of them.
        """
        examples = self.batch if self.sharded else self.batch // self.parts
        return self.sub_centers * examples

    @property
    def kept_tiles(self) -> int:
        """Tiles whose logits are kept; those of the others are computed again."""
        if self.parts > 1 and self.sharded:
            return 0
        return kept_tiles(self.tiles, self.columns * FLOAT, self.logits_bytes)

    def replace(self, **changes) -> HeadLoad:
        """A copy with some attributes changed."""
        return dataclasses.replace(self, **changes)


def held(load: HeadLoad) -> dict[str, int]:
    """Bytes on the fullest replica, in all of a step: `{item: bytes}`."""
    kept_rows = sum(load.tiles[: load.kept_tiles])
    sampling = 0
    if load.sample_rate < 1:
        # A number per class is drawn and searched for the largest ones.
        sampling = 2 * FLOAT * load.rows + 24 * load.working_rows
    return {
        "head weights": load.rows * load.row_bytes,
        "head slots": load.rows * load.slot_bytes,
        "kept logits": kept_rows * load.columns * FLOAT,
        "gathered batch": BATCH_TENSORS * load.batch * load.embedding_size * FLOAT,
        "sampling": sampling,
    }


def first_pass(load: HeadLoad) -> int:
    """Bytes that come and go with each tile in the first pass."""
    columns = load.columns // (load.parts if load.sharded else 1)
    tensors = _logit_tensors(load) - 1
    return _tile(load, columns, tensors) + (
        load.rows_per_tile * load.row_bytes if load.sample_rate < 1 else 0
    )


def second_pass(load: HeadLoad) -> int:
    """Bytes that come and go with each tile in the second pass.

    These are its products, its errors and what they are reduced to, and the gradient
    of its weights; a compiled update happens in place.
    """
    slots = math.ceil(load.slot_bytes / load.row_bytes)
    if not load.sharded:
        gradients = 2  # and what the norms of the weights take off it
    elif load.sample_rate < 1:
        # Rows of weights and slots are gathered and scattered, old and new.
        gradients = 3 + 2 * slots
    else:
        gradients = 1 if load.compiled else 3 + slots
    clipping = 2 * FLOAT * load.batch**2 if load.clipped else 0
    return (
        _tile(load, load.columns, _logit_tensors(load))
        + load.rows_per_tile * load.row_bytes * gradients
        + clipping
    )


def making(load: HeadLoad) -> tuple[int, int]:
    """Bytes while the weights are made: (on the device, of numpy on the host)."""
    whole = not load.sharded or load.sample_rate < 1
    rows = load.rows if whole else load.rows_per_tile  # of a variable
    device = load.rows * load.row_bytes
    if rows <= LARGE_TILE or not load.sharded:
        return device, rows * load.row_bytes
    # It is filled in parts in place of zeros, which TensorFlow copies for it. Of numpy
    # there are the first part, the next one, and its tensor.
    return device + rows * load.row_bytes, 3 * LARGE_TILE * load.row_bytes


def _logit_tensors(load):
    return LOGIT_TENSORS if load.compiled else PLAIN_LOGIT_TENSORS


def _tile(load, columns, tensors):
    """Bytes of so many tensors `[tile, columns]`, and of half-precision operands."""
    # Products that are kept are counted there.
    tensors -= load.kept_tiles == len(load.tiles)
    size = load.rows_per_tile * columns * FLOAT
    half = load.rows_per_tile * load.row_bytes + size if load.half else 0
    return tensors * size + half


# Weight and norm of an example, and its label as two columns, beside the embedding.
COLUMNS_BESIDE = 4
# Sums of one number, or three: weights of the examples; what is not finite and the
# workers' votes; the loss.
SMALL_SUMS = (("weights", 1), ("votes", 3), ("loss", 1))


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange between the replicas, or several of a kind.

    Attributes:
        name: what is exchanged.
        kind: "all-gather", "all-reduce", or "reduce-scatter".
        bytes: of an all-gather's result, of what a replica brings to the others.
        sent: that each replica sends: in a ring, or to a reduce-scatter's owners.
        count: collectives that it takes; the bytes are those of all of them.
    """

    name: str
    kind: str
    bytes: int
    sent: int
    count: int = 1


def collectives(  # noqa: PLR0913 - the most of them have defaults
    load: HeadLoad,
    gradient_bytes: int,
    *,
    buckets: int = 1,
    smoothing: bool = False,
    ranks: int = 0,
    reduce_scatter: bool = False,
) -> list[Collective]:
    """What the replicas exchange in a step, a list of `Collective`.

    Norms to clip by, and the state of losses that have one, are not counted.

    Args:
        load: the `HeadLoad`.
        gradient_bytes: gradients of the weights that every replica has, in the type
            that they travel in.
        buckets: in which they travel.
        smoothing: whether there is label smoothing.
        ranks: how many training accuracies are computed.
        reduce_scatter: whether the runtime has it, as for the workers of a cluster
            on CPUs; otherwise it is an all-reduce.
    """
    replicas, found = load.replicas, []
    batch = load.labels * load.own_batch * replicas
    share = (replicas - 1) / replicas

    def add(name, kind, size, count=1):
        times = 2 if kind == "all-reduce" else 1
        sent = math.ceil(times * share * size)
        found.append(Collective(name, kind, size, sent, count))

    parts = load.parts  # each part of a batch has its own collectives
    if load.sharded:
        if load.sample_rate < 1:
            add("labels to sample by", "all-gather", batch * 8)
        columns = load.embedding_size + COLUMNS_BESIDE
        add("embeddings and labels", "all-gather", batch * columns * FLOAT, parts)
        add("true classes' scores", "all-reduce", batch * FLOAT, parts)
        columns = 3 if smoothing else 2
        size = replicas * batch * columns * FLOAT
        add("statistics", "all-gather", size, parts)
        # Ranks are a column beside the gradients.
        columns = load.embedding_size + (1 if ranks else 0)
        kind = "reduce-scatter" if reduce_scatter else "all-reduce"
        add("embeddings' gradients", kind, batch * columns * FLOAT, parts)
    else:
        gradient_bytes += load.num_classes * load.row_bytes
    add("gradients of mirrored weights", "all-reduce", gradient_bytes, buckets)
    for name, numbers in SMALL_SUMS:
        add(name, "all-reduce", numbers * FLOAT)
    if ranks:
        add("accuracies", "all-reduce", ranks * FLOAT, ranks)
    return found
