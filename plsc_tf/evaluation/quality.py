"""Quality of images, from the lengths of their embeddings. NumPy only.

Networks tend to give shorter embeddings to images in which they recognize little (Meng
et al., "MagFace", 2021). The quality of an image is the share of a validation set
whose embeddings are shorter than its embedding, before any normalization.
"""

from collections.abc import Sequence

import numpy as np

# Fewer images of a validation set do not calibrate the quality.
MIN_IMAGES = 100
_SHARES = np.linspace(0, 1, 101)
# Shares of the discarded pairs.
_DISCARDED = np.linspace(0, 0.5, 51)


def calibrate(norms: np.ndarray) -> list[float]:
    """Returns the percentiles 0 to 100 of the norms of a validation set, `[n]`."""
    return np.quantile(norms, _SHARES).astype(np.float32).tolist()


def rate(norms: np.ndarray, percentiles: Sequence[float]) -> np.ndarray:
    """Returns the qualities, in [0, 1], of embeddings with the given norms, `[n]`."""
    return np.interp(norms, percentiles, _SHARES)


def error_versus_discard(scores, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Computes how discarding pairs of low quality reduces the false non-match rate.

    As in Grother and Tabassi, "Performance of biometric quality measures" (2007), and
    ISO/IEC 29794-1, a pair's quality is the lower of its two images'. Norms order pairs
    as the qualities do.

    Args:
        scores: `verification.PairScores` with norms.
        threshold: smallest squared distance of pairs that are rejected.

    Returns:
        (shares of the same pairs that are discarded, `[points]` from 0 to 0.5; shares
        of the others that are rejected, `[points]`).
    """
    lowest = np.min(scores.norms, axis=0)[scores.same]
    rejected = scores.distances[scores.same] >= threshold
    ordered = rejected[np.argsort(lowest, kind="stable")]
    starts = (_DISCARDED * len(ordered) + 1e-9).astype(int)
    return _DISCARDED, np.array([ordered[start:].mean() for start in starts])
