"""Embeddings in a file, one after another, which grows and is mapped into memory."""

import mmap
import os

import numpy as np

# The file grows by at least so many bytes, and by a quarter of itself.
_GROWTH = 1 << 24


class Rows:
    """Rows of numbers in a file. Rows that are written never change."""

    def __init__(self, path: str, dim: int, dtype: str):
        """Opens or makes the file.

        Args:
            path: its path.
            dim: numbers of a row.
            dtype: "float32" or "float16".
        """
        self._dtype, self._dim = np.dtype(dtype), dim
        self._row_bytes = dim * self._dtype.itemsize
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._map = self._array = None
        self._remap()

    def write(self, start: int, rows: np.ndarray) -> None:
        """Writes rows [n, dim] at row `start`; on disk when this returns.

        Raises:
            OSError: they could not be written; no other row has changed.
        """
        data = np.ascontiguousarray(rows, self._dtype)
        end = (start + len(data)) * self._row_bytes
        size = os.fstat(self._file).st_size
        if end > size:
            # Not only announced: a full disk must be an error here, not a signal.
            grown = max(end, size + max(_GROWTH, size // 4))
            try:
                os.posix_fallocate(self._file, size, grown - size)
            except OSError:
                os.posix_fallocate(self._file, size, end - size)
        view, offset = memoryview(data).cast("B"), start * self._row_bytes
        while view:
            written = os.pwrite(self._file, view, offset)
            view, offset = view[written:], offset + written
        os.fdatasync(self._file)
        if start + len(data) > len(self._array):
            self._remap()

    def read(self) -> np.ndarray:
        """All rows that the file has room for, as a read-only array [n, dim]."""
        return self._array

    def close(self) -> None:
        """Closes the file; arrays that were read stay valid."""
        os.close(self._file)

    def _remap(self):
        count = os.fstat(self._file).st_size // self._row_bytes
        if not count:
            self._array = np.zeros((0, self._dim), self._dtype)
            return
        self._map = mmap.mmap(self._file, count * self._row_bytes, prot=mmap.PROT_READ)
        self._array = np.frombuffer(self._map, self._dtype).reshape(count, self._dim)
