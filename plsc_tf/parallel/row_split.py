"""Which replica holds which rows."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RowSplit:
    """Which replica holds which rows: `num_rows // n + (r < num_rows % n)` each.

    PLSC cuts at `ceil(num_rows / n)`, which leaves replicas without rows when
    there are few of them; this split differs by at most one row.
    """

    num_rows: int
    num_shards: int

    def __post_init__(self):
        if not 0 < self.num_shards <= self.num_rows:
            raise ValueError(
                "Every replica must hold at least one row. Received: "
                f"num_rows={self.num_rows}, num_shards={self.num_shards}. Use fewer "
                "replicas, or a replicated head (loss_type=softmax or arcface)."
            )

    def size(self, shard):
        """Number of rows of one shard."""
        return self.num_rows // self.num_shards + (
            shard < self.num_rows % self.num_shards
        )

    def first(self, shard):
        """Global number of the first row of one shard."""
        base, extra = divmod(self.num_rows, self.num_shards)
        return shard * base + min(shard, extra)

    def ranges(self, low, high):
        """Cuts the global rows `[low, high)` at the borders of the shards.

        Yields:
            (shard, first row within the shard, last + 1, first global row).
        """
        for shard in range(self.num_shards):
            first = self.first(shard)
            start = max(low, first)
            stop = min(high, first + self.size(shard))
            if start < stop:
                yield shard, start - first, stop - first, start
