"""Labeled embeddings in scratch files, and the class centers computed from them."""

import functools
import os

import numpy as np

from plsc_tf.requirements import require


class EmbeddingStore:
    """Stores unit embeddings on disk; only 8 bytes per image stay in memory.

    The center of a class is the mean of its embeddings.

    Args:
        folder: folder for the files, which take 2 bytes per element of an embedding
            and 4 bytes per element of a class's sum.
        num_classes: number of classes; labels are 0 … num_classes - 1.
        size: embedding size.

    Attributes:
        labels: int64 `[images]`, or None before `finish`.
        counts: int64 `[classes]`, number of images per class.
        sums: float32 `[classes, size]`, sum of each class's embeddings.
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
        """Appends embeddings.

        Args:
            embeddings: `[n, size]`, rows of length 1.
            labels: int `[n]`.

        Raises:
            ValueError: a label is out of range, or an embedding contains NaN or
                infinity.
        """
        labels = np.asarray(labels, np.int64)
        check_labels(labels, self.num_classes)
        if not np.isfinite(embeddings).all():
            raise ValueError("embeddings must be finite. Received: NaN or infinity.")
        self._labels.append(labels)
        self._file.write(np.ascontiguousarray(embeddings, np.float16))
        np.add.at(self.counts, labels, 1)
        np.add.at(self.sums, labels, embeddings)

    def finish(self):
        """Closes the store for writing and opens the embeddings for reading.

        Raises:
            ValueError: the store is empty.
        """
        self._file.close()
        require(self._labels, "The data has no images, so there are no embeddings")
        self.labels = np.concatenate(self._labels)
        shape = len(self.labels), self.size
        self._rows = np.memmap(self._path, np.float16, "r", shape=shape)

    def rows(self, chosen):
        """Returns the embeddings at a slice or array of image indices.

        The result is float32 `[n, size]`.
        """
        return np.asarray(self._rows[chosen], np.float32)

    @functools.cached_property
    def agreement(self):
        """The mean cosine between two images of each class, float64 `[classes]`.

        For n unit vectors with sum s, it is (|s|² - n) / (n (n - 1)). Unlike the
        length of the mean vector, its expected value does not depend on n. Classes
        with fewer than two images get the median; all others get at least a quarter
        of it.
        """
        square = np.einsum("ij,ij->i", self.sums, self.sums, dtype=np.float64)
        many, count = self.counts > 1, self.counts
        mean = (square - count)[many] / (count * (count - 1.0))[many]
        usual = max(np.median(mean), 1e-3) if many.any() else 1.0
        result = np.full(self.num_classes, usual)
        result[many] = np.maximum(mean, usual / 4)
        return result

    def comparable(self, low, high):
        """Returns centers `[low, high)`, scaled for comparison across classes.

        The expected product of two centers is 1 if both classes show one identity.
        It is the mean cosine between images of the two classes, divided by the
        geometric mean of the two within-class mean cosines (Spearman's correction for
        attenuation), so classes with few or scattered images are not penalized.
        """
        scale = np.maximum(self.counts[low:high], 1) * np.sqrt(self.agreement[low:high])
        return self.sums[low:high] / scale[:, np.newaxis].astype(np.float32)

    def own(self, rows, labels):
        """Returns cosines between embeddings and the rest of their class.

        Each embedding is compared with the center of the *other* images of its class;
        NaN if there are none.
        """
        found = np.einsum("ij,ij->i", rows, unit(self.sums[labels] - rows))
        return np.where(self.counts[labels] > 1, found, np.nan)


def check_labels(labels: np.ndarray, num_classes: int) -> None:
    """Raises ValueError unless labels, int `[n]`, are classes of the head."""
    low, high = labels.min(), labels.max()
    rule = f"Labels must be classes of the head, 0 to {num_classes - 1}"
    require(0 <= low and high < num_classes, rule, labels=f"{low} to {high}")


def unit(rows: np.ndarray) -> np.ndarray:
    """Normalizes one row or several to length 1; rows of zeros stay zero."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
