"""Bytes that a head holds and moves in a step, from its shape alone.

The formulas are explained in docs/planner.md, and compared with measured memory by
`benchmarks.planner`.
"""

import dataclasses
import math

from plsc_tf.heads.sharded import even_tile_rows
from plsc_tf.parallel.row_split import RowSplit
from plsc_tf.parallel.rows import LARGE_TILE

FLOAT = 4
# Tensors [tile, batch] that exist at the same time, see `_logits`.
LOGIT_TENSORS = 3
PLAIN_LOGIT_TENSORS = 6
# Tensors [batch, emb]: gathered, normalised, pulled, summed gradients and the like.
BATCH_TENSORS = 8


@dataclasses.dataclass(frozen=True)
class HeadLoad:
    """What the memory of a head in training depends on.

    Attributes:
        num_classes: of the whole head.
        embedding_size: length of the embeddings.
        replicas: how many there are.
        global_batch: examples per step over all replicas.
        parts: that each replica's batch is cut into (gradient accumulation).
        row_bytes: weights of one class, its bias or all its centers included.
        slot_bytes: the optimizer's slots of one class.
        sharded: whether each replica holds its share of the classes only.
        sample_rate: share of a replica's classes in a step (Partial FC).
        tile_rows: classes of a tile; None: as the head chooses.
        logits_bytes: products may be kept in up to so many bytes per replica.
        half: whether the products' operands are cast to half precision.
        compile_rows: tiles of so many classes are compiled.
        clipped: whether the gradients are clipped to a norm.
        sub_centers: rows of weights per class.
        labels: per example, which meets the classes once with each (mixup, cutmix).
    """

    num_classes: int
    embedding_size: int
    replicas: int
    global_batch: int
    parts: int = 1
    row_bytes: int = 0
    slot_bytes: int = 0
    sharded: bool = True
    sample_rate: float = 1.0
    tile_rows: int | None = None
    logits_bytes: float = 1024e6
    half: bool = False
    compile_rows: int = 2048
    clipped: bool = False
    sub_centers: int = 1
    labels: int = 1

    @property
    def rows(self):
        """Classes of the replica that holds most."""
        if not self.sharded:
            return self.num_classes
        return -(-self.num_classes // self.replicas)

    @property
    def working_rows(self):
        """Classes of a replica that take part in a step."""
        if self.sample_rate == 1:
            return self.rows
        # All true classes take part, however small the sample.
        sample = max(1, int(self.sample_rate * self.rows))
        return min(self.rows, max(sample, self.labels * self.global_batch))

    @property
    def rows_per_tile(self):
        """Classes that a replica works on at a time."""
        if not self.sharded:
            return self.rows
        rows = max(1, int(self.sample_rate * self.rows))
        if self.working_rows > rows:
            return self.working_rows  # a sample of unknown size is one tile
        size = self.sub_centers * self.embedding_size
        return min(rows, self.tile_rows or even_tile_rows(rows, size))

    @property
    def tiles(self):
        """Tiles of a replica."""
        return -(-self.working_rows // self.rows_per_tile)

    @property
    def compiled(self):
        """Whether XLA compiles what happens to a tile."""
        return self.sub_centers * self.rows_per_tile >= self.compile_rows

    @property
    def batch(self):
        """Examples that meet a replica's classes in a step, the padding included."""
        return self.labels * self.own_batch * (self.replicas if self.sharded else 1)

    @property
    def own_batch(self):
        """Examples of a replica's own, the padding of the batch included."""
        return -(-self.global_batch // (self.replicas * self.parts)) * self.parts

    @property
    def kept_tiles(self):
        """Tiles whose products are kept; those of the others are computed again."""
        if self.parts > 1 and self.sharded:
            return 0
        if self.columns * self.working_rows * FLOAT <= self.logits_bytes:
            return self.tiles
        return int(self.logits_bytes // (self.columns * self.rows_per_tile * FLOAT))

    @property
    def columns(self):
        """Products of a class that a replica computes at a time.

        One for each example, and with several centers per class one for each of them.
        """
        examples = self.batch if self.sharded else self.batch // self.parts
        return self.sub_centers * examples

    @property
    def kept_rows(self):
        """Classes whose products are kept."""
        return min(self.kept_tiles * self.rows_per_tile, self.working_rows)

    def check(self):
        """Raises ValueError where `ShardedHead.build` would."""
        if not self.sharded:
            return
        RowSplit(self.num_classes, self.replicas)
        rows = max(1, int(self.sample_rate * self.rows))
        if self.tile_rows is not None and self.tile_rows > rows:
            raise ValueError(
                f"A tile cannot be larger than what a replica works on, {rows} of "
                f"{self.num_classes} classes on {self.replicas} replica(s). Received: "
                f"tile_rows={self.tile_rows}; leave it out to have it chosen."
            )

    def replace(self, **changes):
        """A copy with some attributes changed."""
        return dataclasses.replace(self, **changes)


def held(load):
    """Bytes on the fullest replica between steps and in one: `{what: bytes}`.

    Not all of it is there at the same time, see `first_pass` and `second_pass`.
    """
    return {
        "head weights": load.rows * load.row_bytes,
        "head slots": load.rows * load.slot_bytes,
        "kept logits": load.kept_rows * load.columns * FLOAT,
        "tile": max(sum(_first_work(load)), sum(_second_work(load))),
        "gathered batch": BATCH_TENSORS * load.batch * load.embedding_size * FLOAT,
        "sampling": _sampling(load),
    }


def making(load):
    """What is asked for while the weights are made.

    Yields:
        (what, key, bytes), and (what, key, None) where it is freed.
    """
    for index, rows in enumerate(_variables(load)):
        size, key = rows * load.row_bytes, ("weight", index)
        if rows <= LARGE_TILE or not load.sharded:
            yield "head weights", key, size
            continue
        # It is filled in parts in place of zeros, which TensorFlow copies for it.
        yield "head weights", "zeros", size
        yield "head weights", "part", LARGE_TILE * load.row_bytes
        yield "head weights", "part", None
        yield "head weights", key, size
        yield "head weights", "zeros", None


def drawn(load):
    """Bytes of numpy's arrays from which weights are made, on the host."""
    rows = max(_variables(load))
    if rows <= LARGE_TILE or not load.sharded:
        return rows * load.row_bytes
    # The first part, the next one, and its tensor.
    return 3 * LARGE_TILE * load.row_bytes


def making_slots(load):
    """What is asked for while the slots are made; as `making`."""
    left, number = load.slot_bytes, 0
    while left > 0:
        size = min(left, load.row_bytes)
        for index, rows in enumerate(_variables(load)):
            yield "head slots", (number, index), rows * size
        left, number = left - size, number + 1


def _variables(load):
    """Rows of each of a replica's variables."""
    whole = not load.sharded or load.sample_rate < 1
    return _tiles(load.rows, load.rows if whole else load.rows_per_tile)


def first_pass(load, part=0):
    """What is asked for until the gradient of the embeddings is known; as `making`.

    Args:
        load: the `HeadLoad`.
        part: number of the part of the batch (gradient accumulation).
    """
    size = load.batch * load.embedding_size * FLOAT // load.parts
    for number in range(BATCH_TENSORS):
        yield "gathered batch", (part, number), size
    if load.sample_rate < 1 and not part:
        yield "sampling", 0, _sampling(load)
    for index, rows in enumerate(_tiles(load.working_rows, load.rows_per_tile)):
        kept = index < load.kept_tiles
        if kept:
            yield "kept logits", index, rows * load.columns * FLOAT
        yield from _come_and_go(_first_work(load, rows, kept))


def second_pass(load, parts=1):
    """What is asked for while the tiles are updated, after so many first passes.

    As `making`.
    """
    for index, rows in enumerate(_tiles(load.working_rows, load.rows_per_tile)):
        kept = index < load.kept_tiles
        yield from _come_and_go(_second_work(load, rows, kept))
        if kept:
            yield "kept logits", index, None
    if load.sample_rate < 1:
        yield "sampling", 0, None
    for part in range(parts):
        yield from _forgotten(part)


def whole_gradient(load, part=0):
    """What is asked for until a head that is not sharded has its gradient.

    As `making`; the gradient stays, as ("gradients", (part, "head")).
    """
    others = range(1, _logit_tensors(load) - 1)
    size = load.rows * load.columns * FLOAT
    yield "tile", "errors", size
    for number in others:
        yield "tile", number, size
    for number in others:
        yield "tile", number, None
    yield "kept logits", 0, None
    # What the norms of the weights take off the gradient.
    yield "tile", "share", load.rows * load.row_bytes
    yield "gradients", (part, "head"), load.rows * load.row_bytes
    yield "tile", "errors", None
    yield "tile", "share", None
    yield from _forgotten(part)


def _forgotten(part):
    for number in range(BATCH_TENSORS):
        yield "gathered batch", (part, number), None


def _come_and_go(sizes):
    for number, size in enumerate(sizes):
        yield "tile", number, size
    for number in range(len(sizes)):
        yield "tile", number, None


def _tiles(rows, rows_per_tile):
    """Rows of each tile."""
    return [min(rows_per_tile, rows - start) for start in range(0, rows, rows_per_tile)]


def _logit_tensors(load):
    """Tensors `[tile, batch]` at a time: products, what they become, temporaries."""
    return LOGIT_TENSORS if load.compiled else PLAIN_LOGIT_TENSORS


def _first_work(load, rows=None, kept=False):
    """Tensors that come and go with each tile in the first pass."""
    rows = rows or load.rows_per_tile
    columns = load.columns // (load.parts if load.sharded else 1)
    # The errors of the second pass have a temporary more.
    found = [rows * columns * FLOAT] * (_logit_tensors(load) - 1 - kept)
    if load.sample_rate < 1:
        found.append(rows * load.row_bytes)
    if load.half:
        found.append(rows * (load.row_bytes + columns * FLOAT))
    return found


def _second_work(load, rows=None, kept=False):
    """Tensors that come and go with each tile in the second pass.

    These are its products, its errors and what they are reduced to, and the gradient
    of its weights; the compiled update happens in place.
    """
    rows = rows or load.rows_per_tile
    found = [rows * load.columns * FLOAT] * (_logit_tensors(load) - kept)
    slots = math.ceil(load.slot_bytes / load.row_bytes)
    if load.sample_rate < 1:
        # Rows of weights and slots are gathered and scattered, old and new.
        gradients = 3 + 2 * slots
    else:
        gradients = 1 if load.compiled else 3 + slots
    found += [rows * load.row_bytes] * gradients
    if load.half:
        found.append(rows * (load.row_bytes + load.columns * FLOAT))
    if load.clipped:
        found.append(2 * FLOAT * load.batch**2)
    return found


def _sampling(load):
    """A number per class is drawn and searched for the largest ones."""
    if load.sample_rate == 1:
        return 0
    return 2 * FLOAT * load.rows + 24 * load.working_rows
