"""Files and folders on any store: local disks and the schemes of `tf.io.gfile`.

Every answer is certain: a file is absent only when the store said so. A store that
cannot be reached, refuses or hangs raises, after a few attempts, a `StorageError`.
"""

import dataclasses
import errno
import fnmatch
import functools
import hashlib
import os
import re
import shutil

from plsc_tf.storage import hdfs, local, remote
from plsc_tf.storage.errors import StorageError as StorageError
from plsc_tf.storage.paths import (
    HADOOP_SCHEMES,
    below_root,
    canonical,
    root_of,
    scheme_of,
)
from plsc_tf.storage.paths import is_local as is_local
from plsc_tf.storage.paths import join as join
from plsc_tf.storage.paths import name as name
from plsc_tf.storage.paths import parent as parent
from plsc_tf.storage.remote import Retry

# Hadoop's client copies each read and write as a whole to Java's heap.
CHUNK_BYTES = 8 << 20
RETRY = Retry()
_WILDCARD = re.compile(r"[*?[]")


def prepare(path):
    """Makes the store of `path` ready, or says what is missing.

    The other functions call it themselves; calling it early finds a wrong set-up
    before any work is done. A store is prepared once per process.

    Args:
        path: any path on the store.

    Raises:
        StorageError: something is not installed, not set or not reachable.
        ValueError: a path that the store cannot have.
    """
    path = canonical(path)
    if is_local(path) or root_of(path) in _prepared():
        return
    if scheme_of(path) in HADOOP_SCHEMES:
        hdfs.prepare_hdfs(path)
    else:
        remote.check_scheme(path)
    _prepared().add(root_of(path))


def exists(path, retry=RETRY):
    """Whether there is a file or folder.

    Raises:
        StorageError: the store did not say.
    """
    return _stat(path, retry) is not None


def is_dir(path, retry=RETRY):
    """Whether there is a folder; raises as `exists`."""
    status = _stat(path, retry)
    return status is not None and status.is_dir


def stat(path, retry=RETRY):
    """The `FileStat` of a file or folder.

    Raises:
        FileNotFoundError: there is neither.
        StorageError: the store did not say.
    """
    status = _stat(path, retry)
    if status is None:
        raise _os_error(errno.ENOENT, path)
    return status


def list_dir(path, retry=RETRY):
    """The names in a folder, sorted.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
        StorageError: the store did not say.
    """
    path = canonical(path)
    if is_local(path):
        return sorted(os.listdir(path))
    _check(path, True, retry)
    names = remote.call("list", "listdir", path, retry=retry)
    return sorted(name.rstrip("/") for name in names)


def size(path, retry=RETRY):
    """Bytes of a file.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no such file.
        StorageError: the store did not say.
    """
    return _check(path, False, retry).size


def walk(folder):
    """Yields (folder, names of its folders, names of its files) from the top down.

    Links to folders are followed. The caller may take folders out of the list.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
        StorageError: the store did not say.
    """
    if "://" not in folder:
        yield from os.walk(folder, onerror=_raise, followlinks=True)
        return
    names = list_dir(folder)
    folders = [name for name in names if is_dir(join(folder, name))]
    yield folder, folders, sorted(set(names) - set(folders))
    for below in folders:
        yield from walk(join(folder, below))


def glob(pattern):
    """The paths that match a pattern with `*`, `?` or `[...]`, sorted.

    Raises:
        StorageError: the store did not say.
    """
    if not _WILDCARD.search(pattern):
        return [pattern] if exists(pattern) else []
    above, slash, last = pattern.rpartition("/")
    matches = []
    for folder in glob(above) if above else [slash or "."]:
        if is_dir(folder):
            prefix = f"{folder}/" if above else slash
            matches += [prefix + n for n in fnmatch.filter(list_dir(folder), last)]
    return matches


def open_read(path, chunk_bytes=CHUNK_BYTES, start=0, stop=None, retry=RETRY):
    """Yields a file's bytes `[start, stop)` in chunks; resumes after faults.

    Args:
        path: the file.
        chunk_bytes: size of a chunk; only the last is smaller, locally and on HDFS.
        start: first byte.
        stop: byte after the last; None: the file's end.
        retry: the `Retry` of each chunk.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no such file.
        ValueError: the file has no such bytes.
        StorageError: the store failed.
    """
    total = size(path, retry)
    stop = total if stop is None else stop
    if not 0 <= start <= stop <= total:
        raise ValueError(
            f"Expected a range of bytes within {path}, which has {total}. Received: "
            f"start={start}, stop={stop}."
        )
    reader = open_random(path, retry)
    try:
        while start < stop:
            chunk = reader.read(start, min(chunk_bytes, stop - start), stop)
            start += len(chunk)
            yield chunk
    finally:
        reader.close()


def open_random(path, retry=RETRY):
    """Opens a file for reads of any part of it, from any thread.

    Returns:
        an object with `read(start, length)`, which returns fewer bytes at the end of
        the file, and `close()`.

    Raises:
        FileNotFoundError: there is no such file; a remote one is opened at the first
            read.
        StorageError: the store failed, also of `read`.
    """
    path = canonical(path)
    if is_local(path):
        return local.RandomReader(path)
    prepare(path)
    return remote.RandomReader(path, retry)


def read(path, start=0, stop=None, retry=RETRY):
    """Returns a file's bytes `[start, stop)`; raises as `open_read`."""
    return b"".join(open_read(path, CHUNK_BYTES, start, stop, retry))


def checksum(path):
    """Returns (bytes, SHA-256 in hex) of a file, read in chunks."""
    digest, total = hashlib.sha256(), 0
    # What fits into a core's cache is hashed faster.
    for chunk in open_read(path, 1 << 20 if is_local(path) else CHUNK_BYTES):
        digest.update(chunk)
        total += len(chunk)
    return total, digest.hexdigest()


def write(path, chunks, retry=RETRY):
    """Writes a file; one that exists is replaced.

    The folder must exist, but HDFS makes it. Local files are flushed to the disk.
    Nothing is left of a file that could not be written, if the store lets it be
    removed.

    Args:
        path: the file.
        chunks: its content: bytes or another buffer such as an array, a list of
            them, a function that returns an iterable of them, or an iterable. The
            last can be gone through only once, so a fault is not repeated.
        retry: the `Retry` of the whole file.

    Returns:
        (bytes, SHA-256 in hex).

    Raises:
        OSError: with its `errno`, such as ENOSPC or EACCES.
        StorageError: the store failed.
    """
    path = below_root(path)
    if _is_buffer(chunks):
        chunks = [chunks]
    make = chunks if callable(chunks) else lambda: chunks
    if not callable(chunks) and iter(chunks) is chunks:
        retry = dataclasses.replace(retry, tries=1)
    if is_local(path):
        return local.write(path, _pieces(make()))
    prepare(path)
    return remote.write(path, lambda: _pieces(make()), retry)


def replace(path, chunks):
    """Writes a small file, in place of an older one, which stays until it is written.

    Local disks swap the two at once. Elsewhere a process that ends between the two
    leaves the new one under its temporary name.

    Args:
        path: the file.
        chunks: as for `write`.

    Raises:
        OSError: as `write`.
    """
    path = below_root(path)
    temporary = f"{path}.writing-new"
    write(temporary, chunks)
    if is_local(path):
        os.replace(temporary, path)
        return
    if exists(path):
        remove(path)
    rename(temporary, path)


def make_dirs(path):
    """Makes a folder and those above it; one that exists stays.

    Raises:
        FileExistsError: there is a file of that name.
        StorageError: the store failed.
    """
    path = below_root(path)
    if is_local(path):
        os.makedirs(path, exist_ok=True)
        return
    prepare(path)
    remote.call("make the folder", "makedirs", path, retry=RETRY)


def rename(old, new):
    """Moves a file or folder to a name that is free, on the same store.

    Args:
        old: the file or folder.
        new: the whole new path; its folder must exist.

    Raises:
        FileNotFoundError: `old` is absent.
        FileExistsError: `new` exists; nothing is overwritten.
        ValueError: the two are on different stores.
        StorageError: the store failed.
    """
    old, new = below_root(old), below_root(new)
    if is_local(old) != is_local(new) or (
        not is_local(old) and root_of(old) != root_of(new)
    ):
        raise ValueError(f"Expected two paths of one store. Received: {old}, {new}.")
    stat(old)
    if os.path.lexists(new) if is_local(new) else exists(new):
        raise _os_error(errno.EEXIST, new)
    if is_local(old):
        local.rename(old, new)
        return
    _check(parent(new), True)
    remote.rename(old, new, RETRY)


def remove(path, retry=RETRY):
    """Removes a file.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no such file.
        StorageError: the store failed.
    """
    path = below_root(path)
    if is_local(path):
        os.remove(path)
        return
    _check(path, False, retry)
    remote.remove(path, "remove", retry)


def remove_tree(path):
    """Removes a folder and all below it.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
        StorageError: the store failed.
    """
    path = below_root(path)
    if is_local(path):
        shutil.rmtree(path)
        return
    _check(path, True)
    remote.remove(path, "rmtree", RETRY)


def atomic_rename(path):
    """Whether `rename` of a folder to a free name happens at once or not at all.

    So it does on local disks and on HDFS. Object stores copy file by file.
    """
    return is_local(path) or scheme_of(path) == "hdfs"


@functools.cache
def _prepared():
    """The roots of stores that are ready; a process has one Java machine."""
    return set()


def _stat(path, retry):
    """The `FileStat`, None if there is nothing."""
    path = canonical(path)
    if is_local(path):
        return local.stat(path)
    prepare(path)
    return remote.stat(path, retry)


def _check(path, is_dir, retry=RETRY):
    """The `FileStat` of a folder, or of a file; raises an error if it is not one."""
    status = stat(path, retry)
    if status.is_dir != is_dir:
        raise _os_error(errno.ENOTDIR if is_dir else errno.EISDIR, path)
    return status


def _raise(error):
    raise error


def _is_buffer(value):
    """Whether it is bytes as a whole: a numpy array is, though it is iterable too."""
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _pieces(chunks):
    """Cuts buffers into flat views of at most `CHUNK_BYTES`."""
    for chunk in chunks:
        view = memoryview(chunk)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        for start in range(0, len(view), CHUNK_BYTES):
            yield view[start : start + CHUNK_BYTES]


def _os_error(number, path):
    return OSError(number, os.strerror(number), os.fspath(path))
