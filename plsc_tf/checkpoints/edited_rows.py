"""Class rows with some removed, merged and added, made as they are written."""

import numpy as np

from plsc_tf.checkpoints.content import row_size

# Rows are read and yielded in pieces of about this size.
PIECE_BYTES = 16_000_000


class EditedRows:
    """The rows of a head after an edit, with the interface of `ShardedRows`.

    Attributes:
        shape: of the whole.
        dtype: name of the type of the stored rows.

    Args:
        stored: the rows before: `StoredRows` or the like.
        labels: the `LabelsMap`.
        merge: function of (rows `[k, ...]`, their weights float64 `[k]`) that returns
            the row of the merged class.
        weights: float64 [old classes], how much each counts in a merge; None: equally.
        added: function of (first, last + 1) that returns these of the new rows,
            counted from 0.
    """

    def __init__(self, stored, labels, *, merge, weights=None, added=None):
        self._stored, self._labels, self._merge = stored, labels, merge
        self._weights, self._added = weights, added
        self.shape = (labels.num_classes, *stored.shape[1:])
        self.dtype = stored.dtype
        self._merged = np.array(sorted(labels.groups), np.int64)
        self._step = max(1, PIECE_BYTES // row_size(self.shape, self.dtype))

    def here(self):
        """All rows are this process's."""
        return 0, self.shape[0]

    def pieces(self, low, high):
        """Yields the rows `[low, high)` in pieces of a few megabytes."""
        kept = len(self._labels.origins)
        row = low
        while row < min(high, kept):
            stop = self._stop(row, min(high, kept))
            yield self._kept(row, stop)
            row = stop
        while row < high:
            stop = min(row + self._step, high)
            yield np.asarray(self._added(row - kept, stop - kept), self.dtype)
            row = stop

    def release(self, low, high):
        """Nothing is held."""

    def whole(self):
        """All rows, as one array."""
        return np.concatenate(list(self.pieces(*self.here())))

    def _stop(self, row, high):
        """Where a piece ends, so that what is read for it is bounded, too."""
        origins = self._labels.origins
        beyond = np.searchsorted(origins, origins[row] + self._step)
        return min(int(beyond), high)

    def _kept(self, low, high):
        origins = self._labels.origins[low:high]
        first = int(origins[0])
        span = self._stored.read(first, int(origins[-1]) + 1)
        rows = span if len(span) == len(origins) else span[origins - first]
        begin, end = np.searchsorted(self._merged, [low, high])
        if begin < end:
            rows = rows.copy()
        for new in self._merged[begin:end].tolist():
            rows[new - low] = self._merged_row(new)
        return rows

    def _merged_row(self, new):
        group = self._labels.groups[new]
        weights = np.ones(len(group))
        if self._weights is not None and np.any(self._weights[group]):
            weights = self._weights[group].astype(np.float64)
        rows = self._stored.take(group).astype(np.float64)
        try:
            return self._merge(rows, weights / weights.sum())
        except ValueError as error:
            listed = ", ".join(map(str, group))
            raise ValueError(f"Classes {listed} cannot be merged: {error}") from error


def merge_directions(rows, weights):
    """The mean direction of rows, as long as they are in the mean.

    Heads with margins take the cosine of a row and an embedding, so a long row must
    not outvote a short one; but the length decides how far a step turns the row.

    Args:
        rows: float64 [k, size].
        weights: float64 [k], of sum 1.

    Raises:
        ValueError: the rows cancel each other, or one of them is zero.
    """
    norms = np.linalg.norm(rows, axis=1)
    if not norms.all():
        raise ValueError("a row of zeros has no direction.")
    direction = weights @ (rows / norms[:, np.newaxis])
    length = np.linalg.norm(direction)
    if length < 1e-6:
        raise ValueError("their rows point into opposite directions.")
    return direction / length * (weights @ norms)


def merge_means(rows, weights):
    """The weighted mean of rows: `[...]`."""
    return np.tensordot(weights, rows, axes=1)


def merge_biases(rows, weights):
    """The logarithm of the sum of exponentials: probabilities of softmax add up."""
    largest = rows.max()
    return largest + np.log(np.sum(np.exp(rows - largest)))
