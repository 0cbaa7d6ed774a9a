"""Class rows that stay in the files of a checkpoint until they are asked for."""

import numpy as np

from plsc_tf.checkpoints.content import row_size
from plsc_tf.storage import files


class StoredRows:
    """`[num_rows, ...]` of a checkpoint whose files were found sound.

    Attributes:
        shape: of the whole.
        dtype: name of its type.

    Args:
        path: the checkpoint folder.
        described: what its manifest says about the array.
    """

    def __init__(self, path, described):
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

    def read(self, low, high):
        """The rows `[low, high)` as numpy."""
        found = np.empty((high - low, *self.shape[1:]), self.dtype)
        part = int(np.searchsorted(self._ends, low, side="right"))
        row = low
        while row < high:
            stop = min(high, int(self._ends[part]))
            begin = int(
                self._headers[part] + (row - self._firsts[part]) * self._row_bytes
            )
            end = begin + (stop - row) * self._row_bytes
            raw = files.read(self._files[part], begin, end)
            rows = np.frombuffer(raw, self.dtype).reshape(stop - row, *self.shape[1:])
            found[row - low : stop - low] = rows
            row, part = stop, part + 1
        return found

    def take(self, rows):
        """These rows, in any order, each read by itself."""
        return np.concatenate([self.read(int(row), int(row) + 1) for row in rows])


class DominantRows:
    """One of several centers of each class, with the face of `StoredRows`.

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
    """An array with the face of `StoredRows`."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype.name

    def read(self, low, high):
        """The rows `[low, high)`."""
        return self._array[low:high]

    def take(self, rows):
        """These rows, in any order."""
        return self._array[np.asarray(rows)]
