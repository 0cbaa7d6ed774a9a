"""Finds people of a test set who are probably classes of the training set. NumPy only.

The row of a class points to the embeddings of its person. A test identity that is one
of the classes is therefore much closer to one row than to all others. For a stranger,
the largest cosines behave like those of random directions in n dimensions, for which
x = arctanh(cosine) has the density sech(x)^(n - 1), with an exponential tail: the gaps
k (x_k - x_k+1) between the sorted x are independent, with one scale (Renyi, "On the
theory of order statistics", 1953).
"""

from collections.abc import Iterable

import numpy as np

from plsc_tf.evaluation import roc
from plsc_tf.evaluation.embedding_store import unit
from plsc_tf.evaluation.verification import PairScores

# The gaps to compare, and those of them in which a person may show: several rows are
# close if there are sub-centers, or if the person is in several classes.
_GAPS, _FIRST = 50, 3
_NEAREST = 1 - 1e-6  # the cosine of a row and itself, rounded
# Expected share of strangers among the people found (Benjamini and Hochberg, 1995).
_FALSE_DISCOVERIES = 0.05


def find(
    scores: PairScores, people: np.ndarray, pieces: Iterable, names: Iterable = ()
) -> dict:
    """Finds the training classes among the identities of pairs.

    Args:
        scores: the pairs' scores, with their embeddings.
        people: int `[2, pairs]`, the identity of both sides of each pair.
        pieces: arrays `[rows, size]` or `[rows, sub_centers, size]`, all rows of the
            classes.
        names: the figures to measure again without the people found.

    Returns:
        {"identities": their number, "found": number of those that are closer to a class
        than strangers are, "estimate": estimated number of all that are classes (Storey
        2002), "figures": {name: value over pairs without the ones found}},
        JSON-serializable. {} if there are too few classes.
    """
    images, first = np.unique(scores.sides, return_index=True)
    present, numbers = np.unique(people, return_inverse=True)
    numbers = numbers.reshape(people.shape)
    centers = np.zeros((len(present), scores.embeddings.shape[1]))
    np.add.at(centers, numbers.ravel()[first], unit(scores.embeddings[images]))
    centers = unit(centers).astype(np.float32).T
    best = np.full((_GAPS + 1, len(present)), -np.inf, np.float32)
    for rows in pieces:
        cosines = unit(rows.reshape(-1, len(centers))) @ centers
        best = np.partition(np.concatenate([best, cosines]), len(cosines), axis=0)
        best = best[len(cosines) :]
    if np.isinf(best).any():
        return {}
    cosines = np.sort(best.astype(np.float64), axis=0)[::-1]
    p = _p_values(np.arctanh(np.minimum(cosines, _NEAREST)))
    places = np.arange(1, len(p) + 1) / len(p)
    passed = np.sort(p)[np.sort(p) <= _FALSE_DISCOVERIES * places]
    leaked = p <= passed.max(initial=-1.0)
    kept, figures = ~leaked[numbers].any(axis=0), {}
    same = scores.same[kept]
    if leaked.any() and same.any() and not same.all():
        without = PairScores(scores.distances[kept], same, None)
        measured = roc.PairStatistics(without).values()
        figures = {n: measured[n] for n in names if type(measured.get(n)) is float}
    counts = {"identities": len(p), "found": int(leaked.sum())}
    estimate = max(len(p) - 2 * np.sum(p > 0.5), counts["found"])
    return {**counts, "estimate": float(estimate), "figures": figures}


def _p_values(best):
    """Returns how probable first gaps as large as these are for strangers.

    Args:
        best: `[gaps + 1, identities]`, the largest arctanh(cosine), descending.
    """
    gaps = -np.arange(1, len(best))[:, np.newaxis] * np.diff(best, axis=0)
    # Rows that are all the same have no gaps.
    ratio = gaps[:_FIRST].max(axis=0) / np.maximum(gaps[_FIRST:].sum(axis=0), 1e-12)
    return 1 - (1 - (1 + ratio) ** (_FIRST - len(gaps))) ** _FIRST
