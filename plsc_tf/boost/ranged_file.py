"""A file of any store with the interface of an open one."""

import io

from plsc_tf.storage import files


class RangedFile(io.RawIOBase):
    """A file that h5py and numpy can read without copying it.

    Args:
        path: the file.
    """

    def __init__(self, path):
        super().__init__()
        self._path = path
        self._size = files.size(path)
        self._at = 0

    def readable(self):
        """Yes."""
        return True

    def seekable(self):
        """Yes."""
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        """Goes to a byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = base[whence] + offset
        return self._at

    def readinto(self, buffer):
        """Reads into a buffer; returns the bytes that it got."""
        stop = min(self._at + len(buffer), self._size)
        content = files.read(self._path, self._at, stop) if stop > self._at else b""
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
