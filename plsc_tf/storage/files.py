"""Accesses files and folders on local disks and on remote stores.

The file system that contains a path is called its store. A file counts as missing only
if the store says so. If a remote store cannot be reached, functions raise a
`StorageError` after a few attempts; if it refuses access or hangs, they raise it
without another attempt. For local paths, functions raise Python's `OSError`s.
"""

import errno
import fnmatch
import functools
import os
import re
import shutil

from plsc_tf.requirements import require
from plsc_tf.storage import checksums, gfiles, hdfs, json_text, local, remote, zips
from plsc_tf.storage.errors import StorageError as StorageError
from plsc_tf.storage.paths import (
    HADOOP_SCHEMES,
    below_root,
    canonical,
    is_local as is_local,
    join as join,
    name as name,
    parent as parent,
    root_of,
    scheme_of,
    temporary_name as temporary_name,
)
from plsc_tf.storage.remote import Retry

# Hadoop's client copies the whole buffer of each read and write to the Java heap.
CHUNK_BYTES = 8 << 20
# Most bytes of a JSON file: as objects of Python, they may take thirty times as much. A
# checkpoint's manifest takes about 1 MB for 100 million classes.
JSON_BYTES = 1 << 25
RETRY = Retry()
_WILDCARD = re.compile(r"[*?[]")


def prepare(path):
    """Prepares the store that contains `path`, once per process.

    The other functions call it themselves; calling it early reveals setup errors
    before any work is done.

    Args:
        path: any path on the store.

    Raises:
        StorageError: something is not installed, not configured or not reachable.
        ValueError: the path is not valid on the store, or on oss://.
    """
    rule = "oss:// is for dataset_dir only: there, an unreachable server looks like an "
    rule += "empty folder. Use a local folder, HDFS or S3"
    require(scheme_of(path) != "oss", rule, path=path)
    _store(canonical(path))


def exists(path, retry=RETRY):
    """Returns whether a file or folder exists.

    Raises:
        StorageError: the store did not answer.
    """
    return _stat(path, retry) is not None


def is_dir(path, retry=RETRY):
    """Returns whether `path` is an existing folder; raises like `exists`."""
    status = _stat(path, retry)
    return status is not None and status.is_dir


def stat(path, retry=RETRY):
    """Returns the `FileStat` of a file or folder.

    Raises:
        FileNotFoundError: the path does not exist.
        StorageError: the store did not answer.
    """
    if (status := _stat(path, retry)) is None:
        raise _os_error(errno.ENOENT, path)
    return status


def list_dir(path, retry=RETRY):
    """Returns the sorted names in a folder.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder does not exist.
        StorageError: the store did not answer, or has a name that leads elsewhere.
    """
    path = canonical(path)
    if is_local(path):
        return sorted(os.listdir(path))
    _check(path, True, retry)
    names = [name.rstrip("/") for name in _store(path).list_dir(path, retry)]
    # Object stores allow such names; a download would write outside of its folder.
    if wrong := {".", ".."}.intersection(names):
        raise StorageError(f"{path} holds a folder {wrong.pop()!r}. Remove it there.")
    return sorted(names)


def size(path, retry=RETRY):
    """Returns a file's size in bytes.

    Raises:
        FileNotFoundError, IsADirectoryError: the file does not exist.
        StorageError: the store did not answer.
    """
    return _check(path, False, retry).size


def walk(folder):
    """Yields (folder, names of its subfolders, names of its files) from the top down.

    To skip subfolders, the caller may remove their names from the list.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder does not exist.
        ValueError: a link leads to a folder that was already read.
        StorageError: the store did not answer.
    """
    # `os.walk` of Python 3.11 recurses, which fails in deep trees.
    waiting, visited = [folder], {}
    while waiting:
        place = waiting.pop()
        if is_local(place):
            folders, others = local.split_folder(canonical(place), visited)
        else:
            names = list_dir(place)
            folders = [name for name in names if is_dir(join(place, name))]
            others = sorted(set(names) - set(folders))
        yield place, folders, others
        waiting += [join(place, name) for name in reversed(folders)]


def glob(pattern):
    """Returns the sorted paths that match a pattern with `*`, `?` or `[...]`.

    Raises:
        StorageError: the store did not answer.
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


def open_read(
    path, chunk_bytes=CHUNK_BYTES, start=0, stop=None, retry=RETRY, most=float("inf")
):
    """Yields a file's bytes `[start, stop)` in chunks; resumes after faults.

    Args:
        path: the file.
        chunk_bytes: chunk size; locally and on HDFS, only the last chunk is smaller.
        start: offset of the first byte.
        stop: offset after the last byte, or None for the end of the file.
        retry: the `Retry` policy for each chunk.
        most: maximum bytes of the whole file.

    Raises:
        FileNotFoundError, IsADirectoryError, StorageError: as for `size`.
        ValueError: the range is not within the file, or the file has too many bytes.
        OSError: another process has shortened the file meanwhile.
    """
    total = size(path, retry)
    require(total <= most, f"{path} must have at most {most:,} bytes", bytes=total)
    stop = total if stop is None else stop
    rule = f"The range must be within the {total} bytes of {path}"
    require(0 <= start <= stop <= total, rule, start=start, stop=stop)
    reader = open_random(path, retry)
    try:
        while start < stop:
            if not (chunk := reader.read(start, min(chunk_bytes, stop - start))):
                raise OSError(f"{path} ends at byte {start}; expected {stop}.")
            start += len(chunk)
            yield chunk
    finally:
        reader.close()


def open_random(path, retry=RETRY):
    """Opens a file for random access from any thread.

    Returns:
        an object with `read(start, length)`, which returns fewer bytes at the end of
        the file, and `close()`.

    Raises:
        FileNotFoundError: the file does not exist; for a remote file, the first `read`
            raises this.
        StorageError: the store failed; `read` raises this too.
    """
    path = canonical(path)
    return _store(path).RandomReader(path, retry)


def read(path, start=0, stop=None, retry=RETRY):
    """Returns a file's bytes `[start, stop)`; raises like `open_read`."""
    return b"".join(open_read(path, CHUNK_BYTES, start, stop, retry))


def read_json(path, most=JSON_BYTES):
    """Returns the content of a JSON file; raises the errors of `json_text.parse`."""
    return json_text.parse(read_limited(path, most), path)


def read_limited(path, most):
    """Returns a file's bytes; raises ValueError if there are more than `most`."""
    return b"".join(open_read(path, most=most))


def checksum(path, algorithm=checksums.DEFAULT):
    """Returns a file's entry for a manifest, see `checksums`; reads it in chunks."""
    digest, total = checksums.ALGORITHMS[algorithm](), 0
    # Chunks that fit into a core's cache are hashed faster.
    for chunk in open_read(path, 1 << 20 if is_local(path) else CHUNK_BYTES):
        digest.update(chunk)
        total += len(chunk)
    return {"bytes": total, algorithm: digest.hexdigest()}


def write(path, chunks, retry=RETRY, algorithm=checksums.DEFAULT):
    """Writes a file, replacing an existing one.

    The folder must exist, except on HDFS, which creates it. Local files are flushed to
    the disk. If writing fails, the incomplete file is removed if the store allows it.

    Args:
        path: the file.
        chunks: the content: bytes or another buffer such as an array, or a function
            that returns an iterable of buffers, which is called for each attempt.
        retry: the `Retry` policy for the whole file.
        algorithm: name of the checksum to compute.

    Returns:
        The file's entry for a manifest, see `checksums`.

    Raises:
        OSError: the write failed; `errno` is, for example, ENOSPC or EACCES.
        StorageError: the store failed.
    """
    path = below_root(path)
    make = chunks if callable(chunks) else lambda: [chunks]
    return _store(path).write(path, lambda: _pieces(make()), retry, algorithm)


def replace(path, chunks):
    """Replaces a small file; keeps the old one until the new one is written.

    It is atomic on local disks. On others, the temporary file may be all that is left.

    Args:
        path: the file.
        chunks: as for `write`.

    Raises:
        OSError: as for `write`.
    """
    path = below_root(path)
    temporary = temporary_name(path)
    write(temporary, chunks)
    if is_local(path):
        os.replace(temporary, path)
        return
    if exists(path):
        remove(path)
    rename(temporary, path)


def make_dirs(path):
    """Creates a folder and its parents, if they don't exist yet.

    Raises:
        FileExistsError: a file with that name exists.
        StorageError: the store failed.
    """
    path = below_root(path)
    if is_local(path):
        os.makedirs(path, exist_ok=True)
        return
    prepare(path)
    remote.call("make the folder", "makedirs", path, retry=RETRY)


def rename(old, new):
    """Moves a file or folder to an unused path on the same store.

    Args:
        old: the file or folder.
        new: the full new path; its folder must exist.

    Raises:
        FileNotFoundError: `old` does not exist.
        FileExistsError: `new` exists; nothing is overwritten.
        StorageError: the store failed.
    """
    old, new = below_root(old), below_root(new)
    stat(old)
    if os.path.lexists(new) if is_local(new) else exists(new):
        raise _os_error(errno.EEXIST, new)
    _check(parent(new), True)
    _store(old).rename(old, new, RETRY)


def remove(path, retry=RETRY):
    """Removes a file.

    Raises:
        FileNotFoundError, IsADirectoryError: the file does not exist.
        StorageError: the store failed.
    """
    _remove(path, os.remove, False, "remove", retry)


def remove_tree(path):
    """Removes a folder and its contents; of a link, only the link.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder does not exist.
        StorageError: the store failed.
    """
    link = is_local(path) and os.path.islink(canonical(path))
    _remove(path, os.remove if link else shutil.rmtree, True, "rmtree", RETRY)


def _remove(path, remove_local, is_dir, function, retry):
    path = below_root(path)
    if is_local(path):
        remove_local(path)
        return
    _check(path, is_dir, retry)
    remote.remove(path, function, retry)


def opens_in_tensorflow(path):
    """Returns whether TensorFlow itself can open files there; raises like `exists`."""
    store = _store(canonical(path))
    return store is local or store is remote and remote.in_tensorflow(path)


def atomic_rename(path):
    """Returns whether a folder is renamed at once; object stores copy its files."""
    return is_local(path) or scheme_of(path) == "hdfs"


def _store(path):
    """Returns the module for the store of a canonical path, after preparing it."""
    if is_local(path):
        return local
    if scheme_of(path) == "zip":
        return zips
    _prepare_root(root_of(path))
    return remote


@functools.cache
def _prepare_root(root):
    """Prepares a store; after an error, the next call tries again."""
    if scheme_of(root) in HADOOP_SCHEMES:
        hdfs.prepare_hdfs(root)
    gfiles.find(root)


def _stat(path, retry):
    """Returns the `FileStat`, or None if the path does not exist."""
    path = canonical(path)
    return _store(path).stat(path, retry)


def _check(path, is_dir, retry=RETRY):
    """Returns the `FileStat`; raises unless `path` is a folder or file as required."""
    status = stat(path, retry)
    if status.is_dir != is_dir:
        raise _os_error(errno.ENOTDIR if is_dir else errno.EISDIR, path)
    return status


def _pieces(chunks):
    """Splits buffers into flat views of at most `CHUNK_BYTES` bytes."""
    for chunk in chunks:
        view = memoryview(chunk)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        for start in range(0, len(view), CHUNK_BYTES):
            yield view[start : start + CHUNK_BYTES]


def _os_error(number, path):
    return OSError(number, os.strerror(number), os.fspath(path))
