"""Detection of wrong labels: split or mixed identities, images in the wrong class.

Everything is computed in blocks; neither all pairs of classes nor all images are ever
in memory at once.
"""

import collections
import dataclasses

import numpy as np

from plsc_tf.evaluation import bootstrap
from plsc_tf.evaluation.embedding_store import unit
from plsc_tf.progress import Progress

# Classes and images per matrix product (64 MB of scores).
_CLASSES, _PICTURES = 4096, 4096
# Maximum number of pairs to keep, and the minimum similarity of a pair worth keeping.
_PAIRS, _LEAST = 200_000, 0.5
# A group contains at least this share of a class's images, and at least two images.
_SHARE = 0.2
# Classes with fewer images are not split.
_FEWEST = 4
# Maximum number of images to use per class, and of starts and steps per search.
_MOST, _STARTS, _STEPS = 1000, 6, 20
# Classes are compared only with classes of similar size if there are this many.
_ENOUGH = 30


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of similar classes, most similar first.

    Attributes:
        first: int64 `[pairs]`, the smaller label.
        second: int64 `[pairs]`, the larger label.
        similarity: float32 `[pairs]`, the product of the two centers.
    """

    first: np.ndarray
    second: np.ndarray
    similarity: np.ndarray

    def above(self, threshold):
        """Returns the pairs whose similarity is at least `threshold`."""
        count = int(np.searchsorted(-self.similarity, -threshold, side="right"))
        return Pairs(self.first[:count], self.second[:count], self.similarity[:count])

    def groups(self):
        """Returns the classes that these pairs connect, as sorted lists of labels."""
        both = np.concatenate([self.first, self.second])
        labels, numbers = np.unique(both, return_inverse=True)
        groups = collections.defaultdict(list)
        parts = bootstrap.linked(len(labels), *np.split(numbers, 2))
        for label, part in zip(labels.tolist(), parts.tolist(), strict=True):
            groups[part].append(label)
        return list(groups.values())


def closest_pairs(store, most=_PAIRS):
    """Finds the pairs of classes with the most similar centers.

    Args:
        store: the `EmbeddingStore`.
        most: maximum number of pairs to keep.

    Returns:
        `Pairs`.
    """
    absent = store.counts == 0
    best, floor = np.empty((0, 3), np.float64), _LEAST
    lows = range(0, store.num_classes, _CLASSES)
    blocks = len(lows) * (len(lows) + 1) // 2
    progress = Progress("comparing centers", blocks, "pairs of blocks", log_every_s=30)
    for number, low in enumerate(lows):
        high = min(low + _CLASSES, store.num_classes)
        rows = store.comparable(low, high)
        for other in lows[number:]:
            end = min(other + _CLASSES, store.num_classes)
            across = rows if other == low else store.comparable(other, end)
            products = rows @ across.T
            products[absent[low:high]] = -np.inf
            products[:, absent[other:end]] = -np.inf
            if other == low:
                products[np.tril_indices(len(rows))] = -np.inf
            # If all embeddings are similar, almost every pair would pass the minimum.
            high_ones = products[products >= floor]
            if len(high_ones) > most:
                floor = np.partition(high_ones, -most)[-most]
            del high_ones
            a, b = np.nonzero(products >= floor)
            more = np.stack([a + low, b + other, products[a, b]], axis=1)
            best = np.concatenate([best, more]) if len(more) else best
            best = best[np.lexsort((best[:, 1], best[:, 0], -best[:, 2]))][:most]
            floor = best[-1, 2] if len(best) == most else floor
            progress.add(1)
    progress.close()
    first, second = best[:, :2].T.astype(np.int64)
    return Pairs(first, second, best[:, 2].astype(np.float32))


@dataclasses.dataclass(frozen=True)
class Nearest:
    """Each image's similarity to its own class and to the nearest other class.

    Attributes:
        own: float32 `[images]`, cosine with the center of the image's own class; NaN
            if the class has no other image.
        other: float32 `[images]`, cosine with the nearest center of another class.
        label: int64 `[images]`, label of that other class.
    """

    own: np.ndarray
    other: np.ndarray
    label: np.ndarray

    @property
    def excess(self):
        """`other - own`, float32: positive if another center is nearer; may be NaN."""
        return self.other - self.own


def nearest_centers(store, duplicates):
    """Compares every image with all centers.

    Args:
        store: the `EmbeddingStore`.
        duplicates: `Pairs` that seem to be one identity. The classes of a pair are not
            compared with each other's images, since either may be the nearer one.

    Returns:
        `Nearest`.
    """
    partners = collections.defaultdict(list)
    for a, b in zip(duplicates.first.tolist(), duplicates.second.tolist(), strict=True):
        partners[a].append(b)
        partners[b].append(a)
    total = len(store.labels)
    own = np.empty(total, np.float32)
    other = np.full(total, -np.inf, np.float32)
    label = np.zeros(total, np.int64)
    progress = Progress("comparing images", total, "images", log_every_s=30)
    for start in range(0, total, _PICTURES):
        part = slice(start, start + _PICTURES)
        rows, labels = store.rows(part), store.labels[part]
        own[part] = store.own(rows, labels)
        for low in range(0, store.num_classes, _CLASSES):
            high = min(low + _CLASSES, store.num_classes)
            scores = rows @ store.unit(low, high).T
            scores[:, store.counts[low:high] == 0] = -np.inf
            _leave_out(scores, labels, low, high, partners)
            best = np.argmax(scores, axis=1)
            score = scores[np.arange(len(best)), best]
            better = score > other[part]
            other[part][better] = score[better]
            label[part][better] = best[better] + low
        progress.add(len(rows))
    progress.close()
    return Nearest(own, other, label)


def _leave_out(scores, labels, low, high, partners):
    """Excludes each image's own class and its similar classes from the comparison."""
    inside = np.flatnonzero((labels >= low) & (labels < high))
    scores[inside, labels[inside] - low] = -np.inf
    if not partners:
        return
    for row, own in enumerate(labels.tolist()):
        for partner in partners.get(own, ()):
            if low <= partner < high:
                scores[row, partner - low] = -np.inf


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


def split_scores(alike, counts):
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
