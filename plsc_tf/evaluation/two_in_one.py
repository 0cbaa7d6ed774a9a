"""Classes whose images fall into two groups, as those of two identities do."""

import dataclasses

import numpy as np

from plsc_tf.evaluation.embedding_store import unit

# A group holds at least this share of a class's images, and two of them.
_SHARE = 0.2
_FEWEST = 4
# Images of a class that are looked at, starts of the search, and its steps.
_MOST, _STARTS, _STEPS = 1000, 6, 20
# Classes of like size that are compared with each other, if there are as many.
_ENOUGH = 30


@dataclasses.dataclass(frozen=True)
class Split:
    """The best two groups of a class.

    Attributes:
        label: of the class.
        first: int64, numbers of the images of the larger group.
        second: int64, those of the other.
        alike: mean cosine across the groups, over that within them.
    """

    label: int
    first: np.ndarray
    second: np.ndarray
    alike: float


class Splitter:
    """Parts the images of a class in two, as well as that can be done.

    Args:
        store: the `EmbeddingStore`.
        trusted: bool [images], those whose labels are not doubted.

    Attributes:
        labels: int64, the classes of at least four trusted images.
        sizes: int64, how many each of them has.
    """

    def __init__(self, store, trusted):
        self._store, self._trusted = store, trusted
        self._order = np.argsort(store.labels, kind="stable")
        self._ends = np.cumsum(store.counts)
        sizes = np.bincount(store.labels[trusted], minlength=store.num_classes)
        self.labels = np.flatnonzero(sizes >= _FEWEST)
        self.sizes = sizes[self.labels]

    def split(self, label):
        """The `Split` of a class, the same whenever it is asked for."""
        end = int(self._ends[label])
        numbers = self._order[end - int(self._store.counts[label]) : end]
        numbers = numbers[self._trusted[numbers]]
        random = np.random.default_rng([label, len(numbers)])
        if len(numbers) > _MOST:
            numbers = np.sort(random.choice(numbers, _MOST, replace=False))
        rows = self._store.rows(numbers)
        first = two_groups(rows, random)
        groups = sorted((first, ~first), key=np.count_nonzero, reverse=True)
        alike = _alike(*(rows[group] for group in groups))
        return Split(label, *(numbers[group] for group in groups), alike)

    def alike(self, progress=lambda done, of: None):
        """How much alike the groups of each of `labels` are, float64."""
        result = []
        for label in self.labels.tolist():
            result.append(self.split(label).alike)
            progress(len(result), len(self.labels))
        return np.array(result)


def two_groups(rows, random):
    """Spherical 2-means whose groups are not too small.

    Args:
        rows: unit vectors [n, size], n at least 4.
        random: `numpy.random.Generator`, for the starts.

    Returns:
        bool [n], which of them are in the first group.
    """
    count = len(rows)
    least = max(2, int(np.ceil(_SHARE * count)))
    best, best_sum = None, -np.inf
    for _ in range(_STARTS):
        a, b = rows[random.choice(count, 2, replace=False)]
        inside = None
        for _ in range(_STEPS):
            sides = rows @ (a - b)
            size = int(np.clip(np.count_nonzero(sides > 0), least, count - least))
            now = np.zeros(count, bool)
            now[np.argsort(-sides, kind="stable")[:size]] = True
            if inside is not None and np.array_equal(now, inside):
                break
            inside = now
            a, b = unit(rows[inside].sum(0)), unit(rows[~inside].sum(0))
        total = np.sum(rows[inside] @ a) + np.sum(rows[~inside] @ b)
        if total > best_sum:
            best, best_sum = inside, total
    return best


def scores(alike, counts):
    """How unusual it is that two groups are so little alike.

    A class of one identity falls into groups that are somewhat unlike, too, the more
    so the fewer images it has. So classes are compared with those of like size, by
    median and median absolute deviation, which some bad classes do not move.

    Args:
        alike: float [classes], of their `Split`s.
        counts: int [classes], their images.

    Returns:
        float64 [classes], deviations below the median.
    """
    result = np.zeros(len(alike))
    sizes = np.floor(np.log2(np.maximum(counts, 1)))
    for size in np.unique(sizes):
        rows = sizes == size
        among = alike[rows] if np.count_nonzero(rows) >= _ENOUGH else alike
        median = np.median(among)
        deviation = 1.4826 * np.median(np.abs(among - median))
        result[rows] = (median - alike[rows]) / max(deviation, 1e-3)
    return result


def _alike(first, second):
    """Mean cosine across two groups over the geometric mean of those within."""
    within = 1.0
    (a, n), (b, m) = ((x.sum(0, dtype=np.float64), len(x)) for x in (first, second))
    for total, size in ((a, n), (b, m)):
        within *= max((total @ total - size) / (size * (size - 1)), 1e-2)
    return float(a @ b / (n * m) / np.sqrt(within))
