"""Implements the operations of `plsc_tf.storage.files` for local paths.

The functions take the arguments of those of `remote`; "_" is a `Retry`, not used here.
"""

import contextlib
import io
import math
import os
import weakref
from stat import S_ISDIR, S_ISLNK, S_ISREG

from plsc_tf.requirements import require
from plsc_tf.storage import checksums, paths

# For larger writes, Linux allocates contiguous pages, which takes several times as long
# if its memory is fragmented (measured on ext4, Linux 6.18).
WRITE_BYTES = 1 << 20


def stat(path, _):
    """Returns the `FileStat`, or None if the path does not exist."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return paths.FileStat(S_ISDIR(status.st_mode), status.st_size, status.st_mtime_ns)


def version(path):
    """Returns what changes if the file is changed or replaced; None on errors."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    # Copies may preserve the time of a modification, but not this one.
    return status.st_ctime_ns, status.st_size, status.st_ino


def write(path, make_pieces, _, algorithm):
    """Writes a file and flushes it to the disk; returns its entry for a manifest."""
    digest, size = checksums.ALGORITHMS[algorithm](), 0
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if S_ISREG(status.st_mode) and status.st_nlink > 1 or S_ISLNK(status.st_mode):
            os.remove(path)
    with open(path, "wb", buffering=0, opener=without_links) as file:
        try:
            for piece in make_pieces():
                done = 0
                while done < len(piece):  # an unbuffered `write` may write only a part
                    done += file.write(piece[done : done + WRITE_BYTES])
                digest.update(piece)
                size += len(piece)
            os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(path)
            if error.errno and not error.filename:
                raise OSError(error.errno, error.strerror, path) from error
            raise
    sync_folder(os.path.dirname(path))
    return {"bytes": size, algorithm: digest.hexdigest()}


def without_links(path, flags):
    """Opens a file for `open`, but no link, also no hard one, which could be any file.

    Others may write links to the folder, or it may be unpacked from an archive. A FIFO
    raises an error: without O_NONBLOCK, opening it waits for a reader.
    """
    safe = flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, safe, 0o666)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        rule = f"{path} has other names (hard links), under which it would change too"
        require(False, rule, "Replace it by a copy", raises=io.UnsupportedOperation)
    if flags & os.O_TRUNC:
        os.ftruncate(descriptor, 0)
    return descriptor


def split_folder(path, visited):
    """Returns (names of the folders in a folder, names of the rest); see `walk`.

    Adds the folder to `visited`, a dict; raises ValueError if it was there.
    """
    status, folders, others = os.stat(path), [], []
    first = visited.setdefault((status.st_dev, status.st_ino), path)
    rule = f"{path!r} is a link to the folder {first!r}, so its files would count twice"
    require(first == path, rule, "Remove the link")
    with os.scandir(path) as entries:
        for entry in entries:
            below = os.path.isdir(entry) if entry.is_symlink() else entry.is_dir()
            (folders if below else others).append(entry.name)
    return folders, others


def require_file(path, most=math.inf):
    """Raises an error if there is no file at `path`, or one of more than `most` bytes.

    Opening a FIFO waits for a writer, and a device may never end.

    Returns:
        Its size in bytes; -1 if `os.stat` fails, as opening it will raise that error.
    """
    try:
        status = os.stat(path)
    except OSError:
        return -1
    name = os.fsdecode(path)
    rule = f"{name} must have at most {most:,} bytes"
    require(status.st_size <= most, rule, bytes=status.st_size)
    rule = f"{name} is not a file, but a FIFO, device or folder"
    # This error is also a ValueError: the data is wrong, not the disk.
    require(S_ISREG(status.st_mode), rule, raises=io.UnsupportedOperation)
    return status.st_size


class RandomReader:
    """Reads parts of a file; closes it when garbage-collected.

    Attributes:
        descriptor: its file descriptor.
    """

    def __init__(self, path, _):
        require_file(path)
        self.descriptor = os.open(path, os.O_RDONLY)
        self.close = weakref.finalize(self, os.close, self.descriptor)

    def read(self, start, length):
        """Returns `length` bytes from `start`, or fewer at the end of the file."""
        return os.pread(self.descriptor, length, start)


def rename(old, new, _):
    """Moves a file or folder atomically and flushes both parent folders to the disk.

    If others create `new` at the same time, it is not replaced.
    """
    try:
        os.link(old, new)
        os.remove(old)
    except FileExistsError:
        raise
    except OSError:  # a folder, or a file system without links
        os.rename(old, new)
    for folder in {os.path.dirname(old), os.path.dirname(new)}:
        sync_folder(folder)


def sync_folder(path):
    """Flushes a folder's entries to the disk."""
    handle = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
