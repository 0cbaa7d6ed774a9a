"""Detection of wrong labels: split or mixed identities, images in the wrong class.

Everything is computed in blocks; neither all pairs of classes nor all images are ever
in memory at once.
"""

import itertools

import numpy as np

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
# Maximum number of images to use per class, and of steps per search.
_MOST, _STEPS = 1000, 20
# Classes are compared only with classes of similar size if there are this many.
_ENOUGH = 30


def closest_pairs(store, most=_PAIRS):
    """Finds the pairs of classes with the most similar centers.

    Args:
        store: the `EmbeddingStore`.
        most: maximum number of pairs to keep.

    Returns:
        record array `[pairs]`, most similar first: the smaller label "first", the
        larger label "second" and the product of the two centers, "similarity".
    """
    best, floor = np.empty((0, 3), np.float64), _LEAST
    lows = range(0, store.num_classes, _CLASSES)
    blocks = itertools.combinations_with_replacement(lows, 2)
    number = len(lows) * (len(lows) + 1) // 2
    progress = Progress("comparing centers", number, "pairs of blocks")
    for low, other in progress.over(blocks):
        rows = store.comparable(low, low + _CLASSES)
        # Centers of absent classes are zero.
        products = rows @ store.comparable(other, other + _CLASSES).T
        if other == low:
            products = np.triu(products, 1)
        # If all embeddings are similar, almost every pair would pass the minimum.
        if np.count_nonzero(products >= floor) > most:
            floor = np.partition(products, -most, axis=None)[-most]
        a, b = np.nonzero(products >= floor)
        more = np.stack([a + low, b + other, products[a, b]], axis=1)
        best = np.concatenate([best, more]) if len(more) else best
        best = best[np.lexsort((best[:, 1], best[:, 0], -best[:, 2]))][:most]
        floor = best[-1, 2] if len(best) == most else floor
    first, second = best[:, :2].T.astype(np.int64)
    columns = first, second, best[:, 2].astype(np.float32)
    return np.rec.fromarrays(columns, names="first, second, similarity")


def nearest_centers(store, identities):
    """Compares every image with all centers.

    Args:
        store: the `EmbeddingStore`.
        identities: int `[classes]`, the same number for classes that seem to be one
            identity. Their images are not compared with each other's centers, since
            either may be the nearer one.

    Returns:
        record array `[images]`: "own", the cosine with the center of the image's own
        class, NaN if the class has no other image; "other", the cosine with the nearest
        center of another identity, and its "label"; "excess", other - own.
    """
    total = len(store.labels)
    own = np.empty(total, np.float32)
    other = np.full(total, -np.inf, np.float32)
    label = np.zeros(total, np.int64)
    blocks = [range(total)[k : k + _PICTURES] for k in range(0, total, _PICTURES)]
    for block in Progress("comparing images", total, "images").over(blocks, len):
        part = slice(block.start, block.stop)
        rows, labels = store.rows(part), store.labels[part]
        own[part] = store.own(rows, labels)
        same = identities[labels][:, np.newaxis]
        for low in range(0, store.num_classes, _CLASSES):
            high = low + _CLASSES
            scores = rows @ unit(store.sums[low:high]).T
            scores[:, store.counts[low:high] == 0] = -np.inf
            scores[same == identities[low:high]] = -np.inf
            best = np.argmax(scores, axis=1)
            score = scores[np.arange(len(best)), best]
            better = score > other[part]
            other[part][better] = score[better]
            label[part][better] = best[better] + low
    columns = own, other, other - own, label
    return np.rec.fromarrays(columns, names="own, other, excess, label")


def split_classes(store, trusted):
    """Splits the images of each class into the best two groups.

    Args:
        store: the `EmbeddingStore`.
        trusted: bool `[images]`, whether each image's label is trusted; other images
            are left out.

    Returns:
        (record array of the classes with at least four trusted images, the highest
        "score" first, see `split_scores`, with their "label" and "alike": the mean
        cosine across the groups, divided by the geometric mean of the mean cosines
        within the groups; int8 `[images]`, 1 for an image in the larger group of its
        class, 2 in the smaller one, 0 in none).
    """
    order = np.flatnonzero(trusted)
    order = order[np.argsort(store.labels[order], kind="stable")]
    counted = np.unique(store.labels[order], return_index=True, return_counts=True)
    classes = np.stack(counted, axis=1)
    classes = classes[classes[:, 2] >= _FEWEST]
    sides, alike = np.zeros(len(trusted), np.int8), np.empty(len(classes))
    progress = Progress("splitting classes", len(classes), "classes")
    for row, (_, start, count) in enumerate(progress.over(classes)):
        images = order[start : start + count : -(-count // _MOST)]
        rows = store.rows(images)
        first = two_groups(rows)
        larger = first if 2 * np.count_nonzero(first) >= len(first) else ~first
        sides[images] = np.where(larger, 1, 2)
        alike[row] = _alike(rows[larger], rows[~larger])
    scores = split_scores(alike, classes[:, 2])
    columns = classes[:, 0], alike, scores
    splits = np.rec.fromarrays(columns, names="label, alike, score")
    return splits[np.argsort(-scores, kind="stable")], sides


def two_groups(rows):
    """Runs spherical 2-means with a minimum group size.

    It starts from the direction in which the rows vary most, which nearly separates two
    groups (Ding and He, "K-means clustering via principal component analysis", 2004).

    Args:
        rows: unit vectors `[n, size]`, with n at least 4.

    Returns:
        bool `[n]`, whether each row is in the first group.
    """
    least = max(2, int(np.ceil(_SHARE * len(rows))))
    centered = rows - rows.mean(axis=0)
    axis = centered[np.argmax(np.linalg.norm(centered, axis=1))]
    for _ in range(_STEPS):
        axis = unit(axis @ centered.T @ centered)
    first = centered @ axis > 0
    for _ in range(_STEPS):
        before = first
        sides = rows @ (unit(rows[first].sum(0)) - unit(rows[~first].sum(0)))
        size = np.clip(np.count_nonzero(sides > 0), least, len(rows) - least)
        first = np.zeros(len(rows), bool)
        first[np.argsort(-sides, kind="stable")[:size]] = True
        if np.array_equal(first, before):
            break
    return first


def split_scores(alike, counts):
    """Scores how unusually dissimilar the two groups of each class are.

    The two groups of a class with a single identity differ, too, and they differ more
    if the class has few images. Classes are therefore compared with classes of similar
    size, using the median and the median absolute deviation, which are robust to a few
    bad classes.

    Args:
        alike: float `[classes]`, see `split_classes`.
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
    """Computes `alike` of `split_classes` from the rows of the two groups."""
    within = 1.0
    (a, n), (b, m) = ((x.sum(0, dtype=np.float64), len(x)) for x in (first, second))
    for total, size in ((a, n), (b, m)):
        within *= max((total @ total - size) / (size * (size - 1)), 1e-2)
    return float(a @ b / (n * m) / np.sqrt(within))
