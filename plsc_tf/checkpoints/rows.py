"""Reads rows from checkpoint files or memory, and edits them while reading."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.parallel import packing
from plsc_tf.requirements import listed, prefix_errors, require
from plsc_tf.storage import arrays, files

# Rows are read and yielded in chunks of about this size.
PIECE_BYTES = 16_000_000
Reader = Callable[[int, int], np.ndarray]
# Bytes of a numpy file that are read to find its header, which mostly has 128.
_MOST_HEADER = 4096


def row_size(shape: Sequence[int], dtype: str) -> int:
    """Returns the size in bytes of one row of `[rows, ...]`."""
    return int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize


class Rows:
    """An array `[num_rows, ...]` in one process, read like `ReplicatedRows`.

    Args:
        shape: shape of the whole array.
        dtype: name of the data type.
        read: function of (first, last + 1) that returns these rows.
    """

    def __init__(self, shape: Sequence[int], dtype: str, read: Reader):
        self.shape, self.dtype, self.read = tuple(shape), dtype, read
        self.row_bytes = row_size(shape, dtype)
        self.piece_rows = max(1, PIECE_BYTES // self.row_bytes)

    def take(self, rows: Iterable[int]) -> np.ndarray:
        """Returns the given rows, in any order; reads each one separately."""
        return np.concatenate([self.read(int(row), int(row) + 1) for row in rows])

    def local_range(self) -> tuple[int, int]:
        """Returns (first, last + 1) of this process's rows, which are all rows."""
        return 0, self.shape[0]

    def pieces(self, low: int, high: int) -> Iterator[np.ndarray]:
        """Yields the rows `[low, high)` in chunks of a few megabytes."""
        for first in range(low, high, self.piece_rows):
            yield self.read(first, min(first + self.piece_rows, high))


class StoredRows(Rows):
    """Rows in the verified files of a checkpoint.

    Args:
        path: the checkpoint folder.
        described: the array's entry in the manifest.

    Attributes:
        stored_dtype: `tf.DType` of the files, see `plsc_tf.parallel.packing`.

    Raises:
        DamagedCheckpointError: a file contains a different number of rows.
    """

    def __init__(self, path: str, described: dict):
        shape, dtype = described["shape"], described["dtype"]
        packed = packing.DTYPES.get(dtype)
        super().__init__(shape, "float32" if packed else dtype, self._read)
        self.stored_dtype = packed or tf.as_dtype(dtype)
        shape = [*shape[:-1], shape[-1] + bool(packed)]
        self._files = Rows(shape, self.stored_dtype.name, self.read_stored)
        row_bytes = self._files.row_bytes
        self._parts = []
        for part in described["parts"]:
            first, end = part["first"], part["last"] + 1
            # A numpy file consists of a header and the rows.
            file = files.join(path, part["file"])
            header = files.size(file) - (end - first) * row_bytes
            start = files.read(file, 0, min(_MOST_HEADER, files.size(file)))
            length = 10 + int.from_bytes(start[8:10], "little")
            known = arrays.npy_header((end - first, *shape[1:]), self._files.dtype)
            # Versions of numpy differ in the blanks that end the header.
            words = [(x[:8] + x[10:]).split() for x in (start[:length], known)]
            if header != length or words[0] != words[1]:
                problem = f"does not hold {end - first} rows of {self.dtype}"
                raise DamagedCheckpointError(path, f"{files.name(file)} {problem}")
            self._parts.append((first, end, file, header))

    def _read(self, low, high):
        """Returns the rows `[low, high)`; read-only if all are in one file."""
        rows = self.read_stored(low, high)
        if self.stored_dtype != self.dtype:
            with tf.device("CPU"):
                return packing.unpack(tf.constant(rows)).numpy()
        return rows

    def read_stored(self, low: int, high: int) -> np.ndarray:
        """Returns the rows `[low, high)` as they are in the files."""
        shape, dtype = self._files.shape[1:], self._files.dtype
        row_bytes, pieces = self._files.row_bytes, [np.empty((0, *shape), dtype)]
        for first, end, file, header in self._parts:
            start, stop = max(low, first) - first, min(high, end) - first
            if start < stop:
                span = header + start * row_bytes, header + stop * row_bytes
                rows = np.frombuffer(files.read(file, *span), dtype)
                pieces.append(rows.reshape(-1, *shape))
        return pieces[1] if len(pieces) == 2 else np.concatenate(pieces)


def one_center(stored: Rows, chosen: np.ndarray) -> Rows:
    """Returns rows with one of several centers for each class.

    Args:
        stored: rows `[classes, sub_centers, ...]`.
        chosen: int `[classes]`, each class's center.
    """

    def read(low, high):
        return stored.read(low, high)[np.arange(high - low), chosen[low:high]]

    return Rows((stored.shape[0], *stored.shape[2:]), stored.dtype, read)


def packed(rows: Rows, dtype: tf.DType) -> Rows:
    """Returns rows as they are stored in 8 bits, see `plsc_tf.parallel.packing`.

    Args:
        rows: float32 `[num_rows, ..., size]`.
        dtype: the `tf.DType` in which they are stored.
    """

    def read(low, high):
        with tf.device("CPU"):
            return packing.pack(tf.constant(rows.read(low, high)), dtype).numpy()

    return Rows((*rows.shape[:-1], rows.shape[-1] + 1), dtype.name, read)


def edited(
    stored: Rows,
    labels: LabelsMap,
    *,
    merge: Callable[[np.ndarray], np.ndarray],
    added: Any = None,
) -> Rows:
    """Returns the rows of a head after removing, merging and adding classes.

    Args:
        stored: the original rows.
        labels: the `LabelsMap`.
        merge: function of rows, float64 `[k, ...]`, that returns the merged class's
            row.
        added: function of (first, last + 1) that returns rows of the new classes,
            which are numbered from 0.
    """
    merged = np.array(sorted(labels.groups), np.int64)

    def read(low, high):
        found = np.empty((high - low, *rows.shape[1:]), rows.dtype)
        origins = labels.origins[low:high]
        if len(origins):
            read_stored(origins, found)
        for new in merged[(merged >= low) & (merged < high)].tolist():
            found[new - low] = merged_row(labels.groups[new])
        if len(origins) < len(found):
            count = len(labels.origins)
            found[len(origins) :] = added(max(low, count) - count, high - count)
        return found

    def read_stored(origins, found):
        # In chunks of `piece_rows` of the old rows.
        for first in range(int(origins[0]), int(origins[-1]) + 1, rows.piece_rows):
            begin, end = np.searchsorted(origins, [first, first + rows.piece_rows])
            if begin < end:
                span = stored.read(first, int(origins[end - 1]) + 1)
                found[begin:end] = span[origins[begin:end] - first]

    def merged_row(group):
        with prefix_errors(f"Classes {listed(map(str, group))} cannot be merged"):
            return merge(stored.take(group).astype(np.float64))

    rows = Rows((labels.num_classes, *stored.shape[1:]), stored.dtype, read)
    return rows


def merge_directions(rows: np.ndarray) -> np.ndarray:
    """Returns a row with the mean direction and the mean length of the given rows.

    Margin heads use the cosine of a row and an embedding, so a long row must not
    outweigh a short one. The length still matters, because it determines how far an
    update rotates the row.

    Args:
        rows: float64 `[k, size]`.

    Raises:
        ValueError: the rows cancel each other out, or one of them is zero.
    """
    norms = np.linalg.norm(rows, axis=1)
    require(norms.all(), "a row of zeros has no direction")
    direction = np.mean(rows / norms[:, np.newaxis], axis=0)
    length = np.linalg.norm(direction)
    if length < 1e-6:
        raise ValueError("their rows point in opposite directions.")
    return direction / length * np.mean(norms)
