"""Counts all pairs of embeddings by cosine, exactly and in bounded memory. NumPy only.

The rows are sorted by group and identity. A rectangle of their float32 scores therefore
holds pairs of one kind, different people of one group or of several groups, except next
to the diagonal. The scores are counted in bins of equal width, so that every edge of a
bin is a threshold with exact counts.
"""

import concurrent.futures
import itertools
import time

import numpy as np
from absl import logging

from plsc_tf.evaluation import roc, verification
from plsc_tf.progress import Progress
from plsc_tf.requirements import require
from plsc_tf.storage import arrays, files

# Bins per unit of cosine. A power of two scales scores without rounding. Rounding lifts
# some scores above 1, into the last bins.
BINS = 1 << 16
_ALL_BINS = BINS + (BINS >> 6)
# The first bin holds all scores below this quantile of a sample's: counting each would
# take a fifth of the time of the products. FAR=0.1 is well above.
_QUANTILE, _SAMPLE = 0.85, 2048
# Rows on a side of a block, which is read and normalized at once, and of a product.
BLOCK, TILE = 16384, 2048
# Scores to count at a time, so that they stay in the cache.
_AT_ONCE = 1 << 19
SAVE_EVERY_S = 60.0
_MOST_GROUPS = 200
DIFFERENT, SAME = 0, 1


class PairCounter:
    """Counts all pairs of rows, or shards of them.

    The counts are int64 `[groups + 1, 2, bins]`, pairs of different and of the same
    people by bin of their cosine, for each group, and at last for pairs across groups.

    Args:
        rows: float `[n, size]`, not necessarily normalized; may be a memory map.
        people: int64 `[n]`, number of each row's identity, from 0 without gaps.
        groups: int64 `[identities]`, number of each one's group, from 0 without gaps.

    Raises:
        ValueError: an embedding is zero or not finite, all pairs are of one kind, or
            there are too many groups.
    """

    def __init__(self, rows, people, groups):
        images, num_groups = np.bincount(people), int(groups.max()) + 1
        rule = "All pairs need two identities, one of them with two rows"
        kinds = {"identities": len(images), "rows": len(people)}
        require(len(images) > 1 and images.max() > 1, rule, **kinds)
        rule = f"There may be at most {_MOST_GROUPS} groups, as each takes 2 MB"
        require(num_groups <= _MOST_GROUPS, rule, groups=num_groups)
        self._rows, self._norms = rows, verification.lengths(rows)
        bad = np.flatnonzero(self._norms <= 1e-30)  # with squares that float64 has
        rule = f"embeddings must not be zero, but {len(bad)} of {len(rows)} rows are"
        advice = "Leave these rows out of all files"
        require(not len(bad), rule, advice, first_row=bad[:1])
        self._order = np.lexsort((people, groups[people]))
        self._people, self._groups = people[self._order], groups[people[self._order]]
        self._person_ends, self._group_ends = _ends(self._people), _ends(self._groups)
        sample = self._unit(self._order[:: -(-len(rows) // _SAMPLE)])
        floor = np.quantile(sample @ sample.T, _QUANTILE)
        # Rounded, as other processors may compute slightly different products.
        self._floor = max(np.floor(100 * floor) / 100, 0.0) * BINS
        self._shape = num_groups + 1, 2, _ALL_BINS

    def load(self, path: str, shard: tuple[int, int] = (1, 1)) -> tuple:
        """Reads the counts of a shard, as `run` saved them.

        Args:
            path: file of the counts.
            shard: (k, shards): the k-th part, from 1, of all blocks.

        Returns:
            (the counts; the blocks that are not counted yet).

        Raises:
            ValueError: the file is damaged.
        """
        sides, (number, shards) = range(0, len(self._order), BLOCK), shard
        total = len(sides) * (len(sides) + 1) // 2
        ends = (total * part // shards for part in (number - 1, number))
        every = itertools.combinations_with_replacement(sides, 2)
        blocks = [*itertools.islice(every, *ends)]
        if not files.exists(path):
            return np.zeros(self._shape, np.int64), blocks
        saved = arrays.read(path)
        # Copied after its size was compared: a forged file could fill the memory.
        good = saved.shape == (np.prod(self._shape) + 1,) and saved.dtype == np.int64
        good = good and saved.min() >= 0 and saved[-1] <= len(blocks)
        done = len(blocks) - int(saved[-1]) if good else 0
        pairs = sum(self._pairs(*block) for block in blocks[:done])
        rule = f"{path} is damaged: it must hold the counts of its pairs"
        require(good and saved[:-1].sum() == pairs, rule, "Delete it to count again")
        return np.array(saved[:-1].reshape(self._shape)), blocks[done:]

    def run(self, path: str, shard: tuple[int, int] = (1, 1)) -> None:
        """Counts what is left of a shard, and saves the counts every minute.

        Args:
            path: file of the counts, from which an earlier run is continued.
            shard: see `load`.
        """
        counts, blocks = self.load(path, shard)
        if files.exists(path):
            logging.warning("Using the counts in %s. Delete it to count again.", path)
        unit = f"blocks of {BLOCK} x {BLOCK} pairs"
        progress = Progress("comparing all pairs", len(blocks), unit)
        held, left, saved = None, len(blocks), time.monotonic()
        for low, other in progress.over(blocks):
            if low != held:
                rows = self._unit(self._order[low : low + BLOCK]) * np.float32(BINS)
            held, left = low, left - 1
            columns = self._unit(self._order[other : other + BLOCK])
            self._add_block(counts, low, rows, other, columns)
            if not left or time.monotonic() - saved > SAVE_EVERY_S:
                saved, shape = time.monotonic(), [counts.size + 1]
                parts = arrays.npy_header(shape, "<i8"), counts, np.array([left], "<i8")
                files.replace(path, lambda parts=parts: parts)

    def _pairs(self, low, other):
        """Returns the number of pairs in a block."""
        one, two = (min(BLOCK, len(self._order) - side) for side in (low, other))
        return one * (one - 1) // 2 if low == other else one * two

    def _unit(self, chosen):
        """Returns normalized rows, float32 `[chosen, size]`."""
        return (self._rows[chosen] / self._norms[chosen, np.newaxis]).astype(np.float32)

    def _add_block(self, counts, low, left, other, right):
        """Counts the pairs of two sides that begin at `low` and `other`.

        A part of the left side, from one group, meets the end of its last person and
        the end of its group on the right side.
        """
        start, tiles = low, []
        # Next to the diagonal, counting is slower.
        height = TILE // 4 if low == other else TILE
        while start < low + len(left):
            group, group_end = self._groups[start], self._group_ends[start]
            stop = min(start + height, low + len(left), group_end)
            part = left[start - low : stop - low]
            marks = start, self._person_ends[stop - 1], group_end, len(self._order)
            near, within, across, end = np.clip(marks, other, other + len(right))
            rows = np.arange(start, stop)[:, np.newaxis]
            columns = np.arange(near, within)
            same = self._people[rows] == self._people[columns]
            scores = part @ right[near - other : within - other].T
            for kind in (DIFFERENT, SAME):
                chosen = scores[(rows < columns) & (same == bool(kind))]
                counts[group, kind] += self._binned(chosen)
            for kind, first, last in ((group, within, across), (-1, across, end)):
                for place in range(first, last, TILE):
                    columns = right[place - other : min(place + TILE, last) - other]
                    tiles.append((kind, part, columns))
            start = stop

        def count(tile):
            kind, part, columns = tile
            return kind, self._binned((part @ columns.T).ravel())

        # One thread counts while the other one multiplies.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for kind, found in pool.map(count, tiles):
                counts[kind, DIFFERENT] += found

    def _binned(self, scores):
        """Counts scaled scores by bin, int64 `[bins]`."""
        counts = np.zeros(_ALL_BINS, np.int64)
        for low in range(0, len(scores), _AT_ONCE):
            some = scores[low : low + _AT_ONCE]
            some = some.take(np.flatnonzero(some >= self._floor))
            counts += np.bincount(some.astype(np.int64), minlength=_ALL_BINS)
        counts[0] += len(scores) - counts.sum()
        return counts


def curve(counts: np.ndarray) -> roc.Curve:
    """Returns the ROC curve of counts, int64 `[2, bins]`, with a point for each bin.

    A bin stands at the distance of its upper edge: thresholds are edges of bins.
    """
    accepted = np.cumsum(counts[:, ::-1], axis=1)
    edges = np.append(np.inf, np.arange(_ALL_BINS, 0, -1) / BINS)
    rates = np.pad(accepted, ((0, 0), (1, 0))) / accepted[:, -1:]
    return roc.Curve(*rates, 2 - 2 * edges, int(accepted[DIFFERENT, -1]))


def errors(counts: np.ndarray, cosine: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts the errors if pairs are accepted from a cosine on, an edge of bins.

    Args:
        counts: int64 `[2, bins]`.
        cosine: the threshold.

    Returns:
        (different pairs that are accepted and same pairs that are rejected, `[2]`;
        different and same pairs, `[2]`).
    """
    accepted, pairs = counts[:, max(round(cosine * BINS), 0) :].sum(1), counts.sum(1)
    return np.where([True, False], accepted, pairs - accepted), pairs


def rounding(size: int) -> float:
    """Bounds the error of a float32 cosine of embeddings with `size` elements.

    It is n u / (1 - n u) for the product, in any order of summation, with u = 2^-24
    (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, equation 3.5), and
    u for the rounding of each of the two unit vectors. The result is rounded up to
    bins.
    """
    unit = 2.0**-24
    return np.ceil((size * unit / (1 - size * unit) + 3 * unit) * BINS) / BINS


def _ends(values):
    """Returns for each element where its run of equal elements ends, int64 `[n]`."""
    ends = np.append(np.flatnonzero(np.diff(values)) + 1, len(values))
    return np.repeat(ends, np.diff(ends, prepend=0))
