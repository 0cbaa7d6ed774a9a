"""Rows of checkpoints: in their files, in memory, or edited as they are read."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.storage import files

# Rows are read and yielded in pieces of about this size.
PIECE_BYTES = 16_000_000
# How a numpy file of format 1.0 begins; two bytes with the header's length follow.
_NUMPY = b"\x93NUMPY\x01\x00"


def row_size(shape: Sequence[int], dtype: str) -> int:
    """Bytes of one row of `[rows, ...]`."""
    return int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize


class Rows:
    """`[num_rows, ...]` of one process, with the interface of `ShardedRows`.

    Args:
        shape: of the whole.
        dtype: name of its type.
    """

    def __init__(self, shape: Sequence[int], dtype: str):
        self.shape, self.dtype = tuple(shape), dtype
        self.row_bytes = row_size(shape, dtype)
        self.piece_rows = max(1, PIECE_BYTES // self.row_bytes)

    def read(self, low: int, high: int) -> np.ndarray:
        """The rows `[low, high)`."""
        raise NotImplementedError

    def take(self, rows: Iterable[int]) -> np.ndarray:
        """These rows, in any order, each read by itself."""
        return np.concatenate([self.read(int(row), int(row) + 1) for row in rows])

    def here(self) -> tuple[int, int]:
        """The rows of this process, (first, last + 1): all of them."""
        return 0, self.shape[0]

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the rows `[low, high)` in pieces of a few megabytes."""
        for first in range(low, high, self.piece_rows):
            yield self.read(first, min(first + self.piece_rows, high))

    def release(self, low: int, high: int) -> None:
        """Nothing is held."""


class StoredRows(Rows):
    """Rows in the files of a checkpoint, which were verified.

    Args:
        path: the checkpoint folder.
        described: the array's entry in the manifest.

    Raises:
        DamagedCheckpointError: a file holds another number of rows.
    """

    def __init__(self, path: str, described: dict):
        super().__init__(described["shape"], described["dtype"])
        parts = sorted(described["parts"], key=lambda part: part["first"])
        self._files = [files.join(path, part["file"]) for part in parts]
        self._firsts = np.array([part["first"] for part in parts], np.int64)
        self._ends = np.array([part["last"] + 1 for part in parts], np.int64)
        if [*self._firsts, self.shape[0]] != [0, *self._ends]:
            problem = f"its {len(parts)} files do not make up {self.shape[0]} rows"
            raise DamagedCheckpointError(path, problem)
        rows = self._ends - self._firsts
        sizes = np.array([files.size(file) for file in self._files], np.int64)
        # A numpy file is a header, then the rows.
        self._headers = sizes - rows * self.row_bytes
        for file, header, count in zip(self._files, self._headers, rows, strict=True):
            start = files.read(file, 0, min(10, files.size(file)))
            length = 10 + int.from_bytes(start[8:], "little")
            if start[:8] != _NUMPY or header != length:
                problem = f"does not hold {count} rows of {self.dtype}"
                raise DamagedCheckpointError(path, f"{files.name(file)} {problem}")

    def read(self, low: int, high: int) -> np.ndarray:
        """The rows `[low, high)`, read-only if they are in one file."""
        pieces, row = [np.empty((0, *self.shape[1:]), self.dtype)], low
        part = int(np.searchsorted(self._ends, low, side="right"))
        while row < high:
            stop = min(high, int(self._ends[part]))
            start = row - int(self._firsts[part])
            begin = int(self._headers[part]) + start * self.row_bytes
            end = begin + (stop - row) * self.row_bytes
            raw = files.read(self._files[part], begin, end)
            pieces.append(np.frombuffer(raw, self.dtype).reshape(-1, *self.shape[1:]))
            row, part = stop, part + 1
        return pieces[1] if len(pieces) == 2 else np.concatenate(pieces)


class DominantRows(Rows):
    """One of several centers of each class.

    Args:
        stored: rows `[classes, sub_centers, ...]`.
        chosen: int [classes], which center of each.
    """

    def __init__(self, stored: Rows, chosen: np.ndarray):
        super().__init__((stored.shape[0], *stored.shape[2:]), stored.dtype)
        self._stored, self._chosen = stored, chosen

    def read(self, low: int, high: int) -> np.ndarray:
        """The rows `[low, high)`."""
        rows = self._stored.read(low, high)
        return rows[np.arange(high - low), self._chosen[low:high]]


class RowsInMemory(Rows):
    """The rows of an array."""

    def __init__(self, array: np.ndarray):
        super().__init__(array.shape, array.dtype.name)
        self._array = array

    def read(self, low: int, high: int) -> np.ndarray:
        """The rows `[low, high)`."""
        return self._array[low:high]


class EditedRows(Rows):
    """The rows of a head with some removed, merged and added.

    Args:
        stored: the rows before.
        labels: the `LabelsMap`.
        merge: function of (rows `[k, ...]`, their weights float64 `[k]`) that returns
            the row of the merged class.
        weights: float64 [old classes], how much each counts in a merge; None: equally.
        added: function of (first, last + 1) that returns these of the new rows,
            counted from 0.
    """

    def __init__(
        self,
        stored: Rows,
        labels: LabelsMap,
        *,
        merge: Callable[[np.ndarray, np.ndarray], np.ndarray],
        weights: np.ndarray | None = None,
        added: Callable[[int, int], np.ndarray] | None = None,
    ):
        super().__init__((labels.num_classes, *stored.shape[1:]), stored.dtype)
        self._stored, self._labels, self._merge = stored, labels, merge
        self._weights, self._added = weights, added or _no_rows
        self._merged = np.array(sorted(labels.groups), np.int64)

    def read(self, low: int, high: int) -> np.ndarray:
        """The rows `[low, high)`."""
        rows = np.empty((high - low, *self.shape[1:]), self.dtype)
        origins = self._labels.origins[low:high]
        if len(origins):
            self._read_stored(origins, rows)
        for new in self._merged[(self._merged >= low) & (self._merged < high)].tolist():
            rows[new - low] = self._merged_row(new)
        if len(origins) < len(rows):
            count = len(self._labels.origins)
            rows[len(origins) :] = self._added(max(low, count) - count, high - count)
        return rows

    def _read_stored(self, origins, rows):
        """Reads as many old rows at a time as a piece has."""
        for first in range(int(origins[0]), int(origins[-1]) + 1, self.piece_rows):
            begin, end = np.searchsorted(origins, [first, first + self.piece_rows])
            if begin < end:
                span = self._stored.read(first, int(origins[end - 1]) + 1)
                rows[begin:end] = span[origins[begin:end] - first]

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


def _no_rows(first, end):
    raise ValueError(f"No rows of the new classes {first} to {end - 1} are given.")


def merge_directions(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
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


def merge_means(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted mean of rows: `[...]`."""
    return np.tensordot(weights, rows, axes=1)


def merge_biases(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exponentials: probabilities of softmax add up."""
    largest = rows.max()
    return largest + np.log(np.sum(np.exp(rows - largest)))
