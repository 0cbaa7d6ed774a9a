"""Template protocols: many images of a person become one embedding (IJB-B, IJB-C).

The images of one medium, such as the frames of a video, are averaged. The averages of a
template's media are added up, and the sum is normalized. NumPy only.
"""

import numpy as np

from plsc_tf.evaluation.verification import unit
from plsc_tf.requirements import require


def pool(embeddings, templates, media, weights=None):
    """Combines the embeddings of images into embeddings of templates.

    Args:
        embeddings: iterable of blocks `[n, embedding_size]` of consecutive images, not
            normalized, because clear images have longer embeddings, which should count
            more.
        templates: `[images]` int64, template of each image.
        media: `[images]` int64, medium of each image; ids are local to a template.
        weights: `[images]` float, such as detector scores; None means all 1.

    Returns:
        (ids, rows): `[templates]` int64, template ids in ascending order, and float64
        `[templates, embedding_size]`, the normalized embeddings of these templates.

    Raises:
        ValueError: an embedding contains NaN or infinity.
    """
    ids, places = np.unique(templates, return_inverse=True)
    pairs = np.stack([places, media])
    _, of, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    # Averaging over a medium means weighting each image by 1 / number of images.
    shares = 1.0 / counts[of.reshape(-1)]
    if weights is not None:
        shares = shares * np.asarray(weights, np.float64)
    sums, first = None, 0
    for block in embeddings:
        images = slice(first, first + len(block))
        if sums is None:
            sums = np.zeros((len(ids), block.shape[1]), np.float64)
        np.add.at(sums, places[images], block * shares[images, np.newaxis])
        first = images.stop
    return ids, unit(sums)


def find(ids, wanted, what):
    """Returns the places of the wanted ids among the sorted `ids` of templates, `[n]`.

    Raises:
        ValueError: a template has no image; `what` names the file that lists it.
    """
    rows = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    missing = np.flatnonzero(ids[rows] != wanted)
    rule = f"The list of images must have an image for each template of {what}"
    require(not len(missing), rule, missing=len(missing), first=wanted[missing[:1]])
    return rows
