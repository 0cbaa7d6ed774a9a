"""Ten-fold verification of pairs, as insightface and PLSC report it. Numpy only."""

import dataclasses
from collections.abc import Callable

import numpy as np

from plsc_tf.evaluation import pair_statistics, roc
from plsc_tf.evaluation.pair_statistics import FOLDS

# Float64 numbers of one side of a block of pairs (32 MiB).
_BLOCK_NUMBERS = 4 * 1024 * 1024
# Images that are decoded at a time (77 MB of 112 x 112).
_IMAGES = 2048


@dataclasses.dataclass(frozen=True)
class PairScores:
    """The distances of the pairs of a verification set.

    Attributes:
        distances: [pairs] float64, squared L2 distance of the normalized embeddings.
        same: [pairs] bool, whether both sides show one identity.
        norms: [pairs] mean norm of the two sides' embeddings before normalization;
            None where undefined, as for templates.
        flip: whether embeddings of mirror images were added.
    """

    distances: np.ndarray
    same: np.ndarray
    norms: np.ndarray | None
    flip: bool = True


@dataclasses.dataclass(frozen=True)
class VerificationResult:
    """The figures of a network on one verification set.

    Attributes:
        accuracy: mean accuracy of the held-out folds.
        std: standard deviation of the folds' accuracies (population, as insightface).
        threshold: squared distance that is best over *all* pairs, the smallest of
            equally good ones. For use of the network; no fold was scored with it.
        val_at_far: mean share of accepted same pairs of the held-out folds, at the
            threshold that gives `far_target` on the other folds.
        val_std: standard deviation of that share.
        far: false accept rate that the held-out folds really had there.
        far_target: the false accept rate aimed at.
        tar_at_far: {FAR target: TAR} over all pairs, for the targets that the number
            of different pairs allows to measure.
        auc: area under the ROC curve of all pairs.
        eer: equal error rate over all pairs.
        xnorm: mean L2 norm of the network's embeddings before normalization.
        num_pairs: how many pairs were compared.
        flip: whether embeddings of mirror images were added.
    """

    accuracy: float
    std: float
    threshold: float
    val_at_far: float
    val_std: float
    far: float
    far_target: float
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

    The protocol of insightface's `eval/verification.py` and PLSC 0.1: consecutive
    folds without shuffling, squared L2 distances of normalized embeddings, each fold
    scored at the threshold that is best on the others (the smallest of equally good
    ones). Distances are computed for the listed pairs only, block by block.

    A fold without a same pair has no validation rate and one without a different
    pair no false accept rate: the means leave them out.

    Args:
        embeddings: [n, embedding_size] float, of any length; they are normalized here.
        left: [pairs] int, rows of `embeddings`.
        right: [pairs] int, rows of `embeddings`.
        same: [pairs] bool, whether both rows show one identity.
        folds: number of folds, at least 2 and at most the number of pairs.

    Returns:
        A `VerificationResult`; `xnorm` is the mean norm of the rows that the pairs
        list, each as often as it is listed.

    Raises:
        ValueError: the shapes disagree, a row is missing or not finite, all pairs are
            of one kind, or there are fewer pairs than folds.
    """
    return summarize(score(embeddings, left, right, same, folds), folds)


def score(
    embeddings: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    same: np.ndarray,
    folds: int = FOLDS,
) -> PairScores:
    """Distances of listed pairs of embeddings; see `verify`, which raises the same.

    Returns:
        `PairScores`.
    """
    embeddings = np.asarray(embeddings)
    left, right, same = _check_pairs(len(embeddings), left, right, same, folds)
    norms = lengths(embeddings)
    # As scikit-learn's normalize does it: a row of zeros stays one.
    scale = np.where(norms == 0.0, 1.0, norms)[:, np.newaxis]
    distances = np.empty(len(left), np.float64)
    for rows in blocks(len(left), embeddings):
        a, b = left[rows], right[rows]
        difference = embeddings[a] / scale[a] - embeddings[b] / scale[b]
        distances[rows] = np.sum(np.square(difference), axis=1)
    return PairScores(distances, same, (norms[left] + norms[right]) / 2)


def summarize(scores: PairScores, folds: int = FOLDS) -> VerificationResult:
    """The `VerificationResult` of `PairScores`."""
    statistics = pair_statistics.PairStatistics(scores, folds=folds)
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
        far_target=pair_statistics.FAR_TARGET,
        tar_at_far=roc.tar_at_far(points),
        auc=roc.area_under_curve(points),
        eer=roc.equal_error_rate(points),
        xnorm=float(np.mean(scores.norms)),
        num_pairs=len(scores.same),
        flip=scores.flip,
    )


def verify_pairs(embed, pairs, *, batch_size=120, image_size=None, flip=None):
    """Embeds the images of a verification set and scores its pairs.

    Every image that a pair lists is embedded once, and once mirrored; the two
    embeddings are added before they are normalized.

    Args:
        embed: callable, uint8 [n, height, width, 3] -> [n, embedding_size] float.
        pairs: object with `left`, `right`, `same` and `decoded(image_size)` as
            `plsc_tf.data.pairs.Pairs` has them. With `decoded_rows(rows, image_size)`
            images are decoded as they are needed, not all at once.
        batch_size: images per call of `embed` (PLSC: test_batch_size, 120).
        image_size: (height, width) handed to `pairs.decoded`; None keeps the images'.
        flip: whether to add the embeddings of mirror images; None does so unless
            `pairs.mirror` says that they show something else.

    Returns:
        A `VerificationResult`; `xnorm` is, as insightface prints it, the mean norm
        over both passes of what the network returned, before the two are added.

    Raises:
        ValueError: as `verify`; or `embed` returned something of another shape.
    """
    options = {"batch_size": batch_size, "image_size": image_size, "flip": flip}
    return summarize(score_pairs(embed, pairs, **options))


def score_pairs(embed, pairs, *, batch_size=120, image_size=None, flip=None):
    """Embeds a verification set; the arguments are those of `verify_pairs`.

    Returns:
        `PairScores`.
    """
    if batch_size < 1:
        raise ValueError(
            f"batch_size must be positive. Received: batch_size={batch_size}."
        )
    if flip is None:
        flip = getattr(pairs, "mirror", True)
    listed = np.concatenate([np.asarray(pairs.left), np.asarray(pairs.right)])
    used, rows = np.unique(listed, return_inverse=True)
    half = len(rows) // 2
    left, right, same = _check_pairs(
        len(used), rows[:half], rows[half:], pairs.same, FOLDS
    )
    whole = None if hasattr(pairs, "decoded_rows") else pairs.decoded(image_size)
    size = batch_size * max(1, _IMAGES // batch_size)
    embedded = []
    for first in range(0, len(used), size):
        block = used[first : first + size]
        images = (
            pairs.decoded_rows(block, image_size) if whole is None else whole[block]
        )
        embedded += [
            embed_batch(embed, images[start : start + batch_size], flip)
            for start in range(0, len(images), batch_size)
        ]
    total, norms = map(np.concatenate, zip(*embedded, strict=True))
    scores = score(total, left, right, same)
    pair_norms = (norms[left] + norms[right]) / 2
    return dataclasses.replace(scores, flip=flip, norms=pair_norms)


def embed_batch(
    function: Callable, images: np.ndarray, flip: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Embeds images, and their mirror images if `flip`.

    Args:
        function: callable, uint8 [n, height, width, 3] -> [n, embedding_size].
        images: uint8 [n, height, width, 3].
        flip: whether to embed mirror images too.

    Returns:
        (sums over both passes [n, embedding_size], mean norms over both [n]), float64.

    Raises:
        ValueError: the function returned another shape, or numbers that are not finite.
    """
    total = _embed(function, images)
    norms = lengths(total)
    if flip:
        mirrored = _embed(function, np.ascontiguousarray(images[:, :, ::-1]))
        norms = (norms + lengths(mirrored)) / 2
        total += mirrored
    return total, norms


def _embed(function, images):
    embeddings = np.array(function(images), np.float64)
    if embeddings.ndim != 2 or len(embeddings) != len(images):
        raise ValueError(
            f"embed must return [{len(images)}, embedding_size] for {len(images)} "
            f"images. Received: shape {embeddings.shape}."
        )
    return embeddings


def blocks(count, embeddings):
    """Yields slices of `count` rows whose embeddings are a block of bounded size."""
    size = max(1, _BLOCK_NUMBERS // max(1, embeddings.shape[1]))
    for start in range(0, count, size):
        yield slice(start, start + size)


def lengths(embeddings: np.ndarray) -> np.ndarray:
    """Float64 L2 norms of the rows, without a float64 copy of them all."""
    if embeddings.ndim != 2:
        raise ValueError(
            "embeddings must be [n, embedding_size]. Received: shape "
            f"{embeddings.shape}."
        )
    norms = np.empty(len(embeddings), np.float64)
    for rows in blocks(len(embeddings), embeddings):
        block = embeddings[rows].astype(np.float64)
        norms[rows] = np.sqrt(np.einsum("ij,ij->i", block, block))
    finite = np.isfinite(norms)
    if not finite.all():
        raise ValueError(
            "embeddings must be finite. Received: NaN or infinity in "
            f"{np.count_nonzero(~finite)} of {len(finite)} rows, first in row "
            f"{np.argmin(finite)}. Has the training diverged?"
        )
    return norms


def raw_pixels(images: np.ndarray) -> np.ndarray:
    """Pixels as embeddings: the baseline of a verifier that has learned nothing.

    Each image's mean is taken off, so that the cosine of two embeddings is the
    correlation of the two images, whatever their brightness and contrast.

    Args:
        images: uint8 [n, height, width, 3].

    Returns:
        float32 [n, height * width * 3].
    """
    images = np.asarray(images)
    flat = images.reshape(len(images), -1).astype(np.float32)
    return flat - flat.mean(axis=1, keepdims=True)


def _check_pairs(num_rows, left, right, same, folds):
    left, right = np.asarray(left), np.asarray(right)
    same = np.asarray(same).astype(bool)
    if not left.shape == right.shape == same.shape == (same.size,):
        raise ValueError(
            "left, right and same must be lists of one length. Received: shapes "
            f"{left.shape}, {right.shape}, {same.shape}."
        )
    if not 2 <= folds <= len(same):
        raise ValueError(
            "There must be at least 2 folds and a pair for each. Received: "
            f"folds={folds}, {len(same)} pairs."
        )
    for name, rows in (("left", left), ("right", right)):
        if rows.min() < 0 or rows.max() >= num_rows:
            raise ValueError(
                f"{name} must hold rows in [0, {num_rows}). Received: values from "
                f"{rows.min()} to {rows.max()}."
            )
    if same.all() or not same.any():
        raise ValueError(
            "A verification set needs pairs of one identity and pairs of two. "
            f"Received: {len(same)} pairs, all with same={bool(same[0])}."
        )
    return left, right, same
