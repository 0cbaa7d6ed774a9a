"""Ten-fold verification of pairs, as in insightface and PLSC. NumPy only."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from plsc_tf.evaluation import roc
from plsc_tf.evaluation.roc import FOLDS
from plsc_tf.requirements import require

# Float64 elements in one side of a block of pairs (32 MiB).
_BLOCK_NUMBERS = 4 * 1024 * 1024
# Approximate number of images to decode at a time (77 MB of 112 x 112 images).
_IMAGES = 2048


@dataclasses.dataclass(frozen=True)
class PairScores:
    """The distances of the pairs of a verification set.

    Attributes:
        distances: `[pairs]` float64, squared L2 distance between the normalized
            embeddings.
        same: `[pairs]` bool, whether both sides show one identity.
        norms: `[2, pairs]`, norms of the two sides' embeddings before normalization;
            None if undefined, as for templates.
        flip: whether the embeddings of mirror images were added.
        embeddings: `[images, size]`, the embeddings; None if they are not known.
        sides: int `[2, pairs]`, the row in `embeddings` of both sides of each pair.
    """

    distances: np.ndarray
    same: np.ndarray
    norms: np.ndarray | None
    flip: bool = True
    embeddings: np.ndarray | None = None
    sides: np.ndarray | None = None


class People(NamedTuple):
    """Who is shown by the pairs of a set.

    Attributes:
        sides: int `[2, pairs]`, the identities on both sides.
        basis: a sentence on how the identities are known.
        groups: `[2, pairs]` text, their groups, "" if unknown; None without groups.
    """

    sides: np.ndarray
    basis: str
    groups: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class VerificationResult:
    """The metrics of a network on one verification set.

    Attributes:
        accuracy: mean accuracy of the held-out folds.
        std: population standard deviation of the folds' accuracies, as in insightface.
        threshold: the most accurate squared distance over *all* pairs; ties go to the
            smallest. It is meant for deployment; no fold was scored with it.
        val_at_far: share of same pairs accepted in a held-out fold at the threshold
            that gives a FAR of 0.001 on the other folds, averaged over folds.
        val_std: standard deviation of that share over folds.
        far: measured false accept rate in a held-out fold at the same threshold,
            averaged over folds.
        tar_at_far: {FAR target: TAR} over all pairs, for those targets that the number
            of different pairs supports.
        auc: area under the ROC curve of all pairs.
        eer: equal error rate over all pairs.
        xnorm: mean L2 norm of the network's embeddings before normalization.
        num_pairs: number of pairs.
        flip: whether the embeddings of mirror images were added.
    """

    accuracy: float
    std: float
    threshold: float
    val_at_far: float
    val_std: float
    far: float
    tar_at_far: dict
    auc: float
    eer: float
    xnorm: float
    num_pairs: int
    flip: bool = True

    def __str__(self):
        name = "Accuracy-Flip" if self.flip else "Accuracy"
        return f"{name}: {self.accuracy:.5f}+-{self.std:.5f}"


def verify(
    embeddings: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    same: np.ndarray,
    folds: int = FOLDS,
) -> VerificationResult:
    """Scores listed pairs of embeddings with k-fold cross-validation.

    This is the protocol of insightface's `eval/verification.py` and PLSC 0.1. Folds are
    consecutive, without shuffling, and distances are squared L2 distances between
    normalized embeddings. Each fold is scored at the most accurate threshold of the
    other folds (the smallest if there is a tie). Distances are computed only for the
    listed pairs, block by block.

    A fold without same pairs has no validation rate, and a fold without different pairs
    has no false accept rate. The means leave such folds out.

    Args:
        embeddings: `[n, embedding_size]` float, normalized by this function.
        left: `[pairs]` int, row indices in `embeddings`.
        right: `[pairs]` int, row indices in `embeddings`.
        same: `[pairs]` bool, whether both rows show one identity.
        folds: number of folds, at least 2 and at most the number of pairs.

    Returns:
        A `VerificationResult`. Its `xnorm` averages the norms of both rows of every
        pair.

    Raises:
        ValueError: the shapes do not match, an embedding contains NaN or infinity, all
            pairs are of one kind, or there are fewer pairs than folds.
    """
    return summarize(score(embeddings, left, right, same, folds), folds)


def score(
    embeddings: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    same: np.ndarray,
    folds: int = FOLDS,
) -> PairScores:
    """Computes the distances of listed pairs; for the errors it raises, see `verify`.

    Returns:
        `PairScores`.
    """
    embeddings = np.asarray(embeddings)
    left, right, same = _check_pairs(left, right, same, folds)
    norms = lengths(embeddings)
    # Rows of zeros stay zero, as with scikit-learn's `normalize`.
    scale = np.where(norms == 0.0, 1.0, norms)[:, np.newaxis]
    distances = np.empty(len(left), np.float64)
    size = max(1, _BLOCK_NUMBERS // max(1, embeddings.shape[1]))
    for start in range(0, len(left), size):
        rows = slice(start, start + size)
        a, b = left[rows], right[rows]
        difference = embeddings[a] / scale[a] - embeddings[b] / scale[b]
        distances[rows] = np.sum(np.square(difference), axis=1)
    sides = np.stack([left, right])
    return PairScores(distances, same, norms[sides], True, embeddings, sides)


def summarize(scores: PairScores, folds: int = FOLDS) -> VerificationResult:
    """Computes the `VerificationResult` of `PairScores`."""
    statistics = roc.PairStatistics(scores, folds=folds)
    once = np.ones(len(scores.same))
    accuracy, threshold = statistics.accuracies(once)
    val, far = statistics.validation_rates(once)
    points = statistics.curve()
    return VerificationResult(
        accuracy=float(np.mean(accuracy)),
        std=float(np.std(accuracy)),
        threshold=threshold,
        val_at_far=float(np.nanmean(val)),
        val_std=float(np.nanstd(val)),
        far=float(np.nanmean(far)),
        tar_at_far=roc.tar_at_far(points),
        auc=roc.area_under_curve(points),
        eer=roc.equal_error_rate(points),
        xnorm=float(np.mean(scores.norms)),
        num_pairs=len(scores.same),
        flip=scores.flip,
    )


def verify_pairs(embed, pairs, *, batch_size=120, image_size=None, flip=None):
    """Embeds the images of a verification set and scores its pairs.

    Every listed image is embedded once and, with `flip`, once mirrored. The two
    embeddings are added before normalization.

    Args:
        embed: callable, uint8 `[n, height, width, 3]` -> float `[n, embedding_size]`.
        pairs: the `plsc_tf.data.pairs.Pairs`; its images are decoded block by block.
        batch_size: images per call of `embed` (PLSC: test_batch_size, 120).
        image_size: (height, width) to pass to `pairs.decoded`; None keeps the original
            size.
        flip: whether to add the embeddings of mirror images; None means `pairs.mirror`.

    Returns:
        A `VerificationResult`. As in insightface, `xnorm` is the mean norm of the
        network's output over both passes, before the two embeddings are added.

    Raises:
        ValueError: `verify` would raise it, or `embed` returned the wrong shape.
    """
    options = {"batch_size": batch_size, "image_size": image_size, "flip": flip}
    return summarize(score_pairs(embed, pairs, **options))


def score_pairs(embed, pairs, *, batch_size=120, image_size=None, flip=None):
    """Embeds a verification set; takes the same arguments as `verify_pairs`.

    Returns:
        `PairScores`.
    """
    flip = pairs.mirror if flip is None else flip
    used, rows = np.unique([pairs.left, pairs.right], return_inverse=True)
    left, right = rows.reshape(2, -1)
    size = batch_size * max(1, _IMAGES // batch_size)
    embedded = []
    for first in range(0, len(used), size):
        images = pairs.decoded(image_size, used[first : first + size])
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size]
            embedded.append(embed_batch(embed, batch, flip))
    total, norms = map(np.concatenate, zip(*embedded, strict=True))
    scores = score(total, left, right, pairs.same)
    return dataclasses.replace(scores, flip=flip, norms=norms[scores.sides])


def embed_batch(
    function: Callable, images: np.ndarray, flip: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Embeds images and, with `flip`, also their mirror images.

    Args:
        function: callable, uint8 `[n, height, width, 3]` -> `[n, embedding_size]`; or a
            pair with the norms `[n]` too, if these embeddings are normalized.
        images: uint8 `[n, height, width, 3]`.
        flip: whether to embed mirror images, too.

    Returns:
        (sum of both passes' embeddings `[n, embedding_size]`, mean of both passes'
        norms `[n]`), both float64.

    Raises:
        ValueError: the function returned the wrong shape, NaN or infinity.
    """
    total, norms = _embed(function, images)
    if flip:
        mirrored, others = _embed(function, np.ascontiguousarray(images[:, :, ::-1]))
        norms = (norms + others) / 2
        total += mirrored
    return total, norms


def _embed(function, images):
    found, count = function(images), len(images)
    rows, norms = found if isinstance(found, tuple) else (found, None)
    embeddings = np.array(rows, np.float64)
    good = embeddings.ndim == 2 and len(embeddings) == count
    rule = f"embed must return [{count}, embedding_size] for {count} images"
    require(good, rule, shape=embeddings.shape)
    return embeddings, lengths(embeddings) if norms is None else norms


def lengths(embeddings: np.ndarray) -> np.ndarray:
    """Returns the rows' L2 norms in float64; raises ValueError for NaN or infinity."""
    # It converts to float64 in small parts, so that all rows need no second copy.
    norms = np.sqrt(np.einsum("ij,ij->i", embeddings, embeddings, dtype=np.float64))
    bad, advice = np.flatnonzero(~np.isfinite(norms)), "The training may have diverged"
    rule = f"embeddings must be finite, but {len(bad)} of {len(norms)} rows are not"
    require(not len(bad), rule, advice, first_row=bad[:1])
    return norms


def unit(rows: np.ndarray) -> np.ndarray:
    """Normalizes rows to length 1; rows of zeros stay zero."""
    scale = lengths(rows)
    scale[scale == 0] = 1
    return rows / scale[:, np.newaxis].astype(rows.dtype)


def _check_pairs(left, right, same, folds):
    left, right, same = np.asarray(left), np.asarray(right), np.asarray(same, bool)
    shapes = left.shape, right.shape, same.shape
    rule = "left, right and same must be 1-D and equally long"
    require(set(shapes) == {(same.size,)}, rule, shapes=shapes)
    if min(left.min(initial=0), right.min(initial=0)) < 0:
        # numpy would count negative rows from the end.
        raise ValueError("left and right must hold numbers of rows, which begin at 0.")
    rule = f"folds must be from 2 to the number of pairs, {len(same)}"
    require(2 <= folds <= len(same), rule, folds=folds)
    mixed = same.any() and not same.all()
    rule = "A verification set needs same and different pairs"
    require(mixed, rule, pairs=len(same), all_with_same=bool(same[0]))
    return left, right, same
