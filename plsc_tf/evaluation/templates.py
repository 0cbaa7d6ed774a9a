"""Template protocols: many images of a person become one embedding (IJB-B, IJB-C).

The images of one medium, such as the frames of a video, are averaged. The averages of a
template's media are added up, and the sum is normalized. NumPy only.
"""

import numpy as np

from plsc_tf.evaluation.verification import blocks, unit


class TemplatePool:
    """Accumulates template embeddings while images are embedded.

    Args:
        templates: `[images]` int64, template of each image.
        media: `[images]` int64, medium of each image; ids are local to a template.
        weights: `[images]` float, such as detector scores; None means all 1.

    Attributes:
        ids: `[templates]` int64, template ids in ascending order, matching the rows
            that `embeddings` returns.
    """

    def __init__(self, templates, media, weights=None):
        self.ids, self._rows = np.unique(templates, return_inverse=True)
        pairs = np.stack([self._rows, media])
        _, of, counts = np.unique(
            pairs, axis=1, return_inverse=True, return_counts=True
        )
        # Averaging over a medium means weighting each image by 1 / number of images.
        self._shares = 1.0 / counts[of.reshape(-1)]
        if weights is not None:
            self._shares = self._shares * np.asarray(weights, np.float64)
        self._sums, self._next = None, 0

    def add(self, embeddings):
        """Adds the embeddings of the next n images, in order.

        Args:
            embeddings: `[n, embedding_size]` float, not normalized, because clear
                images have longer embeddings, which should count more.
        """
        rows = slice(self._next, self._next + len(embeddings))
        if self._sums is None:
            self._sums = np.zeros((len(self.ids), embeddings.shape[1]), np.float64)
        # Sort the rows so that `reduceat` can add up each template's rows at once.
        templates = self._rows[rows]
        order = np.argsort(templates, kind="stable")
        scaled = embeddings[order] * self._shares[rows][order, np.newaxis]
        present, starts = np.unique(templates[order], return_index=True)
        if len(present):
            self._sums[present] += np.add.reduceat(scaled, starts, axis=0)
        self._next = rows.stop

    def embeddings(self):
        """Returns the normalized template embeddings, in the order of `ids`.

        Returns:
            float64 `[templates, embedding_size]`.

        Raises:
            ValueError: an embedding contained NaN or infinity.
        """
        return unit(self._sums)

    def find(self, ids, what):
        """Returns the rows of the templates with these ids, `[n]`.

        Raises:
            ValueError: a template has no image; `what` names the file that lists it.
        """
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        missing = np.flatnonzero(self.ids[rows] != ids)
        if len(missing):
            raise ValueError(
                f"The list of images has no image for {len(missing)} templates of "
                f"{what}, such as template {ids[missing[0]]}."
            )
        return rows


def cosines(embeddings, left, right):
    """Computes the cosines of listed pairs of unit rows, block by block.

    Args:
        embeddings: `[n, embedding_size]` float, rows of length 1.
        left: `[pairs]` int, row indices.
        right: `[pairs]` int, row indices.

    Returns:
        float32 `[pairs]`.
    """
    embeddings = np.asarray(embeddings, np.float32)
    result = np.empty(len(left), np.float32)
    for rows in blocks(len(left), embeddings):
        result[rows] = np.einsum(
            "ij,ij->i", embeddings[left[rows]], embeddings[right[rows]]
        )
    return result
