"""Class rows that stay in the files of a checkpoint until they are read."""

from collections.abc import Iterable

import numpy as np

from plsc_tf.checkpoints.content import row_size
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.storage import files

# How a numpy file of format 1.0 begins; two bytes with the header's length follow.
_NUMPY = b"\x93NUMPY\x01\x00"


class StoredRows:
    """`[num_rows, ...]` of a checkpoint whose files were verified.

    Attributes:
        shape: of the whole.
        dtype: name of its type.

    Args:
        path: the checkpoint folder.
        described: the array's entry in the manifest.

    Raises:
        DamagedCheckpointError: a file holds another number of rows.
    """

    def __init__(self, path: str, described: dict):
        self.shape = tuple(described["shape"])
        self.dtype = described["dtype"]
        self._row_bytes = row_size(self.shape, self.dtype)
        parts = sorted(described["parts"], key=lambda part: part["first"])
        self._files = [files.join(path, part["file"]) for part in parts]
        self._firsts = np.array([part["first"] for part in parts], np.int64)
        self._ends = np.array([part["last"] + 1 for part in parts], np.int64)
        rows = self._ends - self._firsts
        sizes = np.array([files.size(file) for file in self._files], np.int64)
        # A numpy file is a header, then the rows.
        self._headers = sizes - rows * self._row_bytes
        for file, header, count in zip(self._files, self._headers, rows, strict=True):
            start = files.read(file, 0, min(10, files.size(file)))
            if start[:8] != _NUMPY or header != 10 + int.from_bytes(
                start[8:], "little"
            ):
                raise DamagedCheckpointError(
                    path,
                    f"{files.name(file)} does not hold {count} rows of {self.dtype}",
                )

    def read(self, low: int, high: int) -> np.ndarray:
        """The rows `[low, high)`, read-only if they are in one file."""
        pieces, row = [np.empty((0, *self.shape[1:]), self.dtype)], low
        part = int(np.searchsorted(self._ends, low, side="right"))
        while row < high:
            stop = min(high, int(self._ends[part]))
            start = row - int(self._firsts[part])
            begin = int(self._headers[part]) + start * self._row_bytes
            end = begin + (stop - row) * self._row_bytes
            raw = files.read(self._files[part], begin, end)
            rows = np.frombuffer(raw, self.dtype)
            pieces.append(rows.reshape(-1, *self.shape[1:]))
            row, part = stop, part + 1
        return pieces[1] if len(pieces) == 2 else np.concatenate(pieces)

    def take(self, rows: Iterable[int]) -> np.ndarray:
        """These rows, in any order, each read by itself."""
        return np.concatenate([self.read(int(row), int(row) + 1) for row in rows])


class DominantRows:
    """One of several centers of each class, with the interface of `StoredRows`.

    Args:
        stored: rows `[classes, sub_centers, ...]`.
        chosen: int [classes], which center of each.
    """

    def __init__(self, stored, chosen):
        self._stored, self._chosen = stored, chosen
        self.shape = (stored.shape[0], *stored.shape[2:])
        self.dtype = stored.dtype

    def read(self, low, high):
        """The rows `[low, high)` as numpy."""
        return self._stored.read(low, high)[
            np.arange(high - low), self._chosen[low:high]
        ]

    def take(self, rows):
        """These rows, in any order."""
        rows = np.asarray(rows)
        return self._stored.take(rows)[np.arange(len(rows)), self._chosen[rows]]


class RowsInMemory:
    """An array with the interface of `StoredRows`."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype.name

    def read(self, low, high):
        """The rows `[low, high)`."""
        return self._array[low:high]

    def take(self, rows):
        """These rows, in any order."""
        return self._array[np.asarray(rows)]
