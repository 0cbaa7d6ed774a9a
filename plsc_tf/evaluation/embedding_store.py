"""Embeddings with labels in scratch files, and what their classes sum up to."""

import os

import numpy as np

# Rows of classes that are worked on at a time (8 MB of 512 numbers).
_ROWS = 4096


class EmbeddingStore:
    """Unit embeddings of any number, on a disk; in memory are 8 bytes of each.

    Args:
        folder: for the files: 2 bytes per number of an embedding, 4 bytes per number
            of a class's sum.
        num_classes: labels are 0 … num_classes - 1.
        size: numbers of an embedding.

    Attributes:
        labels: int64 [images].
        counts: int64 [classes], images of each.
        sums: float32 [classes, size], sum of each class's embeddings.
    """

    def __init__(self, folder, num_classes, size):
        self.num_classes, self.size = num_classes, size
        self.counts = np.zeros(num_classes, np.int64)
        path, shape = os.path.join(folder, "sums"), (num_classes, size)
        self.sums = np.memmap(path, np.float32, "w+", shape=shape)
        self._path = os.path.join(folder, "embeddings")
        self._file = open(self._path, "wb")  # noqa: SIM115 - closed by `finish`
        self._labels, self.labels, self._rows = [], None, None

    def add(self, embeddings, labels):
        """Stores the next images.

        Args:
            embeddings: [n, size] of length 1.
            labels: int [n].

        Raises:
            ValueError: a label that is none, or numbers that are not finite.
        """
        labels = np.asarray(labels, np.int64)
        wrong = labels[(labels < 0) | (labels >= self.num_classes)]
        if len(wrong):
            known = f"The classes are 0 to {self.num_classes - 1}."
            raise ValueError(f"{known} Received: label {wrong[0]}.")
        if not np.isfinite(embeddings).all():
            raise ValueError("embeddings must be finite. Received: NaN or infinity.")
        self._labels.append(labels)
        self._file.write(np.ascontiguousarray(embeddings, np.float16))
        np.add.at(self.counts, labels, 1)
        np.add.at(self.sums, labels, embeddings)

    def finish(self):
        """Ends adding; the embeddings can be read then.

        Raises:
            ValueError: there are none.
        """
        self._file.close()
        if not self._labels:
            raise ValueError("There is no picture.")
        self.labels = np.concatenate(self._labels)
        shape = len(self.labels), self.size
        self._rows = np.memmap(self._path, np.float16, "r", shape=shape)

    def rows(self, chosen):
        """Embeddings by a slice or numbers of images, float32 [n, size]."""
        return np.asarray(self._rows[chosen], np.float32)

    def agreement(self):
        """Mean cosine of two images of each class, float64 [classes].

        Of n unit vectors with the sum s it is (|s|² - n) / (n (n - 1)): unlike the
        length of the mean, it does not depend on n. Classes of one image, and those
        far below the others, get a number for what is usual.
        """
        square = np.empty(self.num_classes)
        for low in range(0, self.num_classes, _ROWS):
            sums = self.sums[low : low + _ROWS]
            square[low : low + _ROWS] = np.einsum("ij,ij->i", sums, sums)
        many, count = self.counts > 1, self.counts
        mean = (square - count)[many] / (count * (count - 1.0))[many]
        usual = max(np.median(mean), 1e-3) if many.any() else 1.0
        result = np.full(self.num_classes, usual)
        result[many] = np.maximum(mean, usual / 4)
        return result


class MeanCenters:
    """Centers of classes that are means of embeddings.

    Attributes:
        num_classes: how many.
        present: bool [classes], whether a class has images.
    """

    def __init__(self, store):
        self._store = store
        self.num_classes = store.num_classes
        self.present = store.counts > 0
        self._agreement = store.agreement()

    def unit(self, low, high):
        """Centers `[low, high)` of length 1; zeros for those that are not present."""
        return unit(self._store.sums[low:high])

    def comparable(self, low, high):
        """Centers whose products are 1 where two classes show one identity.

        The mean cosine of images of two classes, over the geometric mean of what it
        is within each (Spearman's correction for attenuation): a center of few or of
        scattered images is not further from others for that.
        """
        counts = np.maximum(self._store.counts[low:high], 1)
        scale = counts * np.sqrt(self._agreement[low:high])
        return self._store.sums[low:high] / scale[:, np.newaxis].astype(np.float32)

    def own(self, rows, labels):
        """Cosine of embeddings and the centers of the *other* images of their class.

        NaN where there is no other.
        """
        rest = self._store.sums[labels] - rows
        found = np.einsum("ij,ij->i", rows, unit(rest))
        return np.where(self._store.counts[labels] > 1, found, np.nan)


class WeightCenters:
    """Centers of classes that are the rows of a head.

    Args:
        read: function of (first, last + 1) that returns rows.
        present: bool [classes], whether a class has images.
    """

    def __init__(self, read, present):
        self._read, self.present = read, present
        self.num_classes = len(present)

    def unit(self, low, high):
        """Rows `[low, high)` of length 1."""
        return unit(np.asarray(self._read(low, high), np.float32))

    comparable = unit

    def own(self, rows, labels):
        """Cosine of embeddings and the rows of their classes."""
        found, place = np.unique(labels, return_inverse=True)
        centers = np.concatenate([self.unit(int(k), int(k) + 1) for k in found])
        return np.einsum("ij,ij->i", rows, centers[place])


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows, or one, divided by their lengths; zeros stay."""
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(norms, 1e-12)
