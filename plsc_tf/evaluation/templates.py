"""Template protocols: many images of a person become one embedding (IJB-B, IJB-C).

Images of one media, such as the frames of a video, are averaged; the media of a
template are added up; the sum is normalized. Numpy only.
"""

import numpy as np

from plsc_tf.evaluation.verification import blocks, lengths


class TemplatePool:
    """Adds up the embeddings of templates as the images come.

    Args:
        templates: [images] int64, template of each image.
        media: [images] int64, its media; ids count within a template.
        weights: [images] float, such as detector scores; None: all 1.

    Attributes:
        ids: [templates] int64, their ids, ascending: the rows of `embeddings`.
    """

    def __init__(self, templates, media, weights=None):
        self.ids, self._rows = np.unique(templates, return_inverse=True)
        pairs = np.stack([self._rows, media])
        _, of, counts = np.unique(
            pairs, axis=1, return_inverse=True, return_counts=True
        )
        # The mean over a media is a sum with the share of each image.
        self._shares = 1.0 / counts[of.reshape(-1)]
        if weights is not None:
            self._shares = self._shares * np.asarray(weights, np.float64)
        self._sums, self._next = None, 0

    def add(self, embeddings):
        """Adds the embeddings of the next images, in their order.

        Args:
            embeddings: [n, embedding_size] float, not normalized: a long embedding,
                of a clear image, counts more.
        """
        rows = slice(self._next, self._next + len(embeddings))
        if self._sums is None:
            self._sums = np.zeros((len(self.ids), embeddings.shape[1]), np.float64)
        # Sorted, so that each template's rows of the block are added in one sweep.
        templates = self._rows[rows]
        order = np.argsort(templates, kind="stable")
        scaled = embeddings[order] * self._shares[rows][order, np.newaxis]
        present, starts = np.unique(templates[order], return_index=True)
        if len(present):
            self._sums[present] += np.add.reduceat(scaled, starts, axis=0)
        self._next = rows.stop

    def embeddings(self):
        """[templates, embedding_size] float64, of length 1, in the order of `ids`.

        Raises:
            ValueError: embeddings were not finite.
        """
        scale = lengths(self._sums)
        scale[scale == 0] = 1
        return self._sums / scale[:, np.newaxis]

    def find(self, ids, what):
        """[n] rows of templates.

        Raises:
            ValueError: a template has no image; `what` names the file that lists it.
        """
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        missing = np.flatnonzero(self.ids[rows] != ids)
        if len(missing):
            raise ValueError(
                f"{what} names {len(missing)} templates without an image, such as "
                f"{ids[missing[0]]}."
            )
        return rows


def cosines(embeddings, left, right):
    """Cosines of listed pairs of unit rows, block by block.

    Args:
        embeddings: [n, embedding_size] float, of length 1.
        left: [pairs] int, rows.
        right: [pairs] int, rows.

    Returns:
        float32 [pairs].
    """
    embeddings = np.asarray(embeddings, np.float32)
    result = np.empty(len(left), np.float32)
    for rows in blocks(len(left), embeddings):
        result[rows] = np.einsum(
            "ij,ij->i", embeddings[left[rows]], embeddings[right[rows]]
        )
    return result
