"""Embeddings of the pictures of a verification set, and their lengths."""

import numpy as np

# How many float64 numbers one side of a block of pairs may take (32 MiB).
_BLOCK_NUMBERS = 4 * 1024 * 1024
# Pictures that are decoded at a time (77 MB of 112 x 112).
_PICTURES = 2048


def block_rows(embeddings):
    """Rows of a block of bounded size."""
    return max(1, _BLOCK_NUMBERS // max(1, embeddings.shape[1]))


def norms(embeddings):
    """Float64 L2 norms of the rows, without a float64 copy of them all."""
    if embeddings.ndim != 2:
        raise ValueError(
            "embeddings must be [n, embedding_size]. Received: shape "
            f"{embeddings.shape}."
        )
    found = np.empty(len(embeddings), np.float64)
    size = block_rows(embeddings)
    for start in range(0, len(embeddings), size):
        block = embeddings[start : start + size].astype(np.float64)
        found[start : start + size] = np.sqrt(np.einsum("ij,ij->i", block, block))
    if not np.isfinite(found).all():
        raise ValueError(
            "embeddings must be finite. Received: NaN or infinity in "
            f"{np.count_nonzero(~np.isfinite(found))} of {len(found)} rows, first in "
            f"row {np.argmin(np.isfinite(found))}. Has the training diverged?"
        )
    return found


def blocks(pairs, used, image_size, batch_size):
    """Yields pictures of a verification set, decoded, block by block.

    Args:
        pairs: as for `verification.verify_pairs`.
        used: int [n], which pictures, in order.
        image_size: (height, width) to decode to; None keeps theirs.
        batch_size: a block holds whole batches, but for the last one.
    """
    size = batch_size * max(1, _PICTURES // batch_size)
    whole = None if hasattr(pairs, "decoded_rows") else pairs.decoded(image_size)
    for start in range(0, len(used), size):
        rows = used[start : start + size]
        if whole is None:
            yield pairs.decoded_rows(rows, image_size)
        else:
            yield whole[rows]


def embed(function, blocks, flip, batch_size):
    """Embeds all pictures, and their mirror images.

    Args:
        function: callable, uint8 [n, height, width, 3] -> [n, embedding_size].
        blocks: iterable of pictures.
        flip: whether to embed mirror images too.
        batch_size: pictures per call.

    Returns:
        (sums over both passes [n, embedding_size], mean norms over both [n]), float64.

    Raises:
        ValueError: the function returned something of another shape, or not finite.
    """
    totals, means = [], []
    for images in blocks:
        first = _embed_all(function, images, batch_size)
        lengths = norms(first)
        if flip:
            mirrored = _embed_all(function, images, batch_size, mirror=True)
            lengths = (lengths + norms(mirrored)) / 2
            first += mirrored
        totals.append(first)
        means.append(lengths)
    return np.concatenate(totals), np.concatenate(means)


def _embed_all(function, images, batch_size, mirror=False):
    """Calls the function batch by batch; float64, for the sum and the norms."""
    result = None
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        if mirror:
            batch = np.ascontiguousarray(batch[:, :, ::-1])
        embeddings = np.asarray(function(batch))
        if embeddings.ndim != 2 or len(embeddings) != len(batch):
            raise ValueError(
                f"embed must return [{len(batch)}, embedding_size] for {len(batch)} "
                f"images. Received: shape {embeddings.shape}."
            )
        if result is None:
            result = np.empty((len(images), embeddings.shape[1]), np.float64)
        result[start : start + len(batch)] = embeddings
    return result
