"""Detection of classes that may mix two identities, by splitting their images."""

import dataclasses

import numpy as np

from plsc_tf.evaluation.embedding_store import unit
from plsc_tf.progress import Progress

# A group contains at least this share of a class's images, and at least two images.
_SHARE = 0.2
# Classes with fewer images are not split.
_FEWEST = 4
# Maximum number of images to use per class, and of starts and steps per search.
_MOST, _STARTS, _STEPS = 1000, 6, 20
# Classes are compared only with classes of similar size if there are this many.
_ENOUGH = 30


@dataclasses.dataclass(frozen=True)
class Split:
    """The best split of a class into two groups.

    Attributes:
        label: the class's label.
        first: int64, indices of the images in the larger group.
        second: int64, indices of the images in the smaller group.
        alike: mean cosine across the groups, divided by the geometric mean of the mean
            cosines within the groups.
    """

    label: int
    first: np.ndarray
    second: np.ndarray
    alike: float


class Splitter:
    """Splits the images of a class into the best two groups.

    Args:
        store: the `EmbeddingStore`.
        trusted: bool `[images]`, whether each image's label is trusted.

    Attributes:
        labels: int64, classes with at least four trusted images.
        sizes: int64, number of trusted images in each of these classes.
    """

    def __init__(self, store, trusted):
        order = np.argsort(store.labels, kind="stable")
        self._store, self._order = store, order[trusted[order]]
        sizes = np.bincount(store.labels[trusted], minlength=store.num_classes)
        self._ends = np.cumsum(sizes)
        self.labels = np.flatnonzero(sizes >= _FEWEST)
        self.sizes = sizes[self.labels]

    def split(self, label):
        """Returns the `Split` of a class; repeated calls return the same split."""
        start = self._ends[label - 1] if label else 0
        numbers = self._order[start : self._ends[label]]
        random = np.random.default_rng([label, len(numbers)])
        if len(numbers) > _MOST:
            numbers = np.sort(random.choice(numbers, _MOST, replace=False))
        rows = self._store.rows(numbers)
        first = two_groups(rows, random)
        groups = sorted((first, ~first), key=np.count_nonzero, reverse=True)
        alike = _alike(*(rows[group] for group in groups))
        return Split(label, *(numbers[group] for group in groups), alike)

    def alike(self):
        """Returns `Split.alike` for each class in `labels`, float64."""
        count, result = len(self.labels), []
        progress = Progress("splitting classes", count, "classes", log_every_s=30)
        for label in self.labels.tolist():
            result.append(self.split(label).alike)
            progress.add(1)
        progress.close()
        return np.array(result)


def two_groups(rows, random):
    """Runs spherical 2-means with a minimum group size.

    Args:
        rows: unit vectors `[n, size]`, with n at least 4.
        random: `numpy.random.Generator` that chooses the starting points.

    Returns:
        bool `[n]`, whether each row is in the first group.
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
    """Scores how unusually dissimilar the two groups of each class are.

    The two groups of a class with a single identity differ, too, and they differ more
    if the class has few images. Classes are therefore compared with classes of similar
    size, using the median and the median absolute deviation, which are robust to a few
    bad classes.

    Args:
        alike: float `[classes]`, `Split.alike` of each class.
        counts: int `[classes]`, number of images in each class.

    Returns:
        float64 `[classes]`, distance below the median in deviations.
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
    """Computes `Split.alike` from the rows of the two groups."""
    within = 1.0
    (a, n), (b, m) = ((x.sum(0, dtype=np.float64), len(x)) for x in (first, second))
    for total, size in ((a, n), (b, m)):
        within *= max((total @ total - size) / (size * (size - 1)), 1e-2)
    return float(a @ b / (n * m) / np.sqrt(within))
