"""Embeddings of the images of a verification set, and their norms."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

# Float64 numbers of one side of a block of pairs (32 MiB).
_BLOCK_NUMBERS = 4 * 1024 * 1024
# Images that are decoded at a time (77 MB of 112 x 112).
_IMAGES = 2048


def block_rows(embeddings: np.ndarray) -> int:
    """Rows of a block of bounded size."""
    return max(1, _BLOCK_NUMBERS // max(1, embeddings.shape[1]))


def norms(embeddings: np.ndarray) -> np.ndarray:
    """Float64 L2 norms of the rows, without a float64 copy of them all."""
    if embeddings.ndim != 2:
        raise ValueError(
            "embeddings must be [n, embedding_size]. Received: shape "
            f"{embeddings.shape}."
        )
    result = np.empty(len(embeddings), np.float64)
    size = block_rows(embeddings)
    for start in range(0, len(embeddings), size):
        block = embeddings[start : start + size].astype(np.float64)
        result[start : start + size] = np.sqrt(np.einsum("ij,ij->i", block, block))
    finite = np.isfinite(result)
    if not finite.all():
        raise ValueError(
            "embeddings must be finite. Received: NaN or infinity in "
            f"{np.count_nonzero(~finite)} of {len(finite)} rows, first in row "
            f"{np.argmin(finite)}. Has the training diverged?"
        )
    return result


def blocks(
    pairs, used: np.ndarray, image_size: tuple | None, batch_size: int
) -> Iterator[np.ndarray]:
    """Yields the decoded images of a verification set, block by block.

    Args:
        pairs: as for `verification.verify_pairs`.
        used: int [n], rows of the images, in order.
        image_size: (height, width) to decode to; None keeps theirs.
        batch_size: a block holds whole batches, except the last one.
    """
    size = batch_size * max(1, _IMAGES // batch_size)
    whole = None if hasattr(pairs, "decoded_rows") else pairs.decoded(image_size)
    for start in range(0, len(used), size):
        rows = used[start : start + size]
        if whole is None:
            yield pairs.decoded_rows(rows, image_size)
        else:
            yield whole[rows]


def embed(
    function: Callable, blocks: Iterable[np.ndarray], flip: bool, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Embeds all images, and their mirror images.

    Args:
        function: callable, uint8 [n, height, width, 3] -> [n, embedding_size].
        blocks: images.
        flip: whether to embed mirror images too.
        batch_size: images per call.

    Returns:
        (sums over both passes [n, embedding_size], mean norms over both [n]), float64.

    Raises:
        ValueError: the function returned another shape, or numbers that are not finite.
    """
    batches = [
        embed_batch(function, images[start : start + batch_size], flip)
        for images in blocks
        for start in range(0, len(images), batch_size)
    ]
    totals, means = zip(*batches, strict=True)
    return np.concatenate(totals), np.concatenate(means)


def embed_batch(
    function: Callable, images: np.ndarray, flip: bool
) -> tuple[np.ndarray, np.ndarray]:
    """As `embed`, for one batch."""
    total = _embed(function, images)
    lengths = norms(total)
    if flip:
        mirrored = _embed(function, np.ascontiguousarray(images[:, :, ::-1]))
        lengths = (lengths + norms(mirrored)) / 2
        total += mirrored
    return total, lengths


def _embed(function, images):
    embeddings = np.array(function(images), np.float64)
    if embeddings.ndim != 2 or len(embeddings) != len(images):
        raise ValueError(
            f"embed must return [{len(images)}, embedding_size] for {len(images)} "
            f"images. Received: shape {embeddings.shape}."
        )
    return embeddings
