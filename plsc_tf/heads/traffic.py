"""What the replicas send each other in a step; docs/distributed.md has the table."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plsc_tf.heads.memory import HeadLoad

# Of one number; labels have 8 bytes.
FLOAT = 4
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
        load: the `plsc_tf.heads.memory.HeadLoad`.
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
