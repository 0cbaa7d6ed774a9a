"""The operations of `plsc_tf.storage.files` on local paths, by the system's calls."""

import contextlib
import functools
import hashlib
import os
import stat as stat_module
import weakref

from plsc_tf.storage.deadline import Worker
from plsc_tf.storage.paths import FileStat

# Linux makes the pages for larger writes in one piece, which takes several times as
# long where its memory is fragmented (measured on ext4, Linux 6.18).
WRITE_BYTES = 1 << 20


def stat(path):
    """Returns the `FileStat`, None if there is nothing."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileStat(
        stat_module.S_ISDIR(status.st_mode), status.st_size, status.st_mtime_ns
    )


def write(path, pieces):
    """Writes a file and flushes it to the disk; returns (bytes, SHA-256)."""
    digest = hashlib.sha256()
    with open(path, "wb", buffering=0) as file, Worker() as worker:
        try:
            # The checksum takes about as long as the disk: at the same time.
            write_all = functools.partial(_write_all, file)
            size = worker.share(pieces, write_all, digest.update)
            os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(path)
            if error.errno and not error.filename:
                raise OSError(error.errno, error.strerror, path) from error
            raise
    sync_folder(os.path.dirname(path))
    return size, digest.hexdigest()


class RandomReader:
    """Reads parts of a file; closed when no thread reads from it any more."""

    def __init__(self, path):
        self._path, self._file = path, os.open(path, os.O_RDONLY)
        self.close = weakref.finalize(self, os.close, self._file)

    def read(self, start, length, stop=None):
        """Returns these bytes, fewer at the end of the file; raises if it is cut off.

        With `stop` the file is known to be longer than `start`.
        """
        content = os.pread(self._file, length, start)
        if stop is not None and not content:
            raise OSError(f"{self._path} ends at byte {start}; expected {stop}.")
        return content


def rename(old, new):
    """Moves a file or folder in one step, and flushes both folders to the disk."""
    os.rename(old, new)
    for folder in {os.path.dirname(old), os.path.dirname(new)}:
        sync_folder(folder)


def sync_folder(path):
    """Flushes a folder's list of names to the disk."""
    handle = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(file, piece):
    """Writes all of a piece; an unbuffered file may take less at a time."""
    done = 0
    while done < len(piece):
        done += file.write(piece[done : done + WRITE_BYTES])
