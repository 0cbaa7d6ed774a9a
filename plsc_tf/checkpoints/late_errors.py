"""A file for writers that do not survive a disk that is full."""

import contextlib
import io
import os


@contextlib.contextmanager
def late_errors(path):
    """Opens a new file whose first error is raised when all is done.

    HDF5 keeps a file open that it could not write to, tries again as the process ends,
    and crashes; numpy's archives complain as they are collected. So they are told that
    all is well, and the error is raised when they are done.

    Args:
        path: the file, on a local disk.

    Raises:
        OSError: it could not be written; what is there of it is worthless.
    """
    file = _LateErrors(path)
    try:
        yield file
    except Exception:
        # Whatever it makes of what it reads back, the disk came first.
        if file.error is None:
            raise
    finally:
        file.close()
    if file.error is not None:
        raise OSError(file.error.errno, os.strerror(file.error.errno), path)


class _LateErrors(io.BytesIO):
    """Keras takes paths and `BytesIO` only; this one holds nothing itself."""

    def __init__(self, path):
        super().__init__()
        self.error = None
        self._file = open(path, "w+b", buffering=0)

    def write(self, data):
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        done = 0
        while done < len(view) and self.error is None:
            try:
                done += self._file.write(view[done:])
            except OSError as error:
                self.error = error
        return len(view)

    def truncate(self, size=None):
        if self.error is None:
            try:
                return self._file.truncate(size)
            except OSError as error:
                self.error = error
        return size

    def readinto(self, buffer):
        if self.error is None:
            return self._file.readinto(buffer)
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        return len(view)

    def read(self, size=-1):
        return self._file.read(size)

    def seek(self, offset, whence=os.SEEK_SET):
        return self._file.seek(offset, whence)

    def tell(self):
        return self._file.tell()

    def flush(self):
        """Nothing is buffered."""

    def close(self):
        self._file.close()
        super().close()
