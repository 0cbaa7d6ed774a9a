"""Implements the operations of `plsc_tf.storage.files` on remote stores.

`gfiles` finds `tf.io.gfile` or its replacement. TensorFlow's `exists`, `isdir` and
`listdir` report a path as missing if a server is down. Here, a path counts as missing
only if `stat` raises a NotFoundError.
"""

import concurrent.futures
import contextlib
import errno
import functools
import os
import threading
import time
import weakref
from typing import NamedTuple

from absl import logging

from plsc_tf.storage import checksums, deadline, errors, gfiles, hdfs
from plsc_tf.storage.paths import HADOOP_SCHEMES, FileStat, root_of, scheme_of


class Retry(NamedTuple):
    """Specifies how to retry calls after transient errors.

    Attributes:
        tries: total number of attempts.
        first_wait_s: seconds to wait before the second attempt; doubled before each
            further attempt.
        limit_s: time limit in seconds for one call. A call that reaches it is not
            retried.
    """

    tries: int = 5
    first_wait_s: float = 0.6
    limit_s: float = 300.0


ONCE = Retry(tries=1, limit_s=30.0)


def stat(path, retry):
    """Returns the `FileStat`, or None if the path does not exist."""
    try:
        status = call("look at", "stat", path, retry=retry)
    except FileNotFoundError:
        return None
    folder = status.is_directory
    return FileStat(folder, 0 if folder else status.length, status.mtime_nsec)


def list_dir(path, retry):
    """Returns the names in a folder; those of subfolders may end with a slash."""
    return call("list", "listdir", path, retry=retry)


def call(doing, function, path, *more, retry, done=None):
    """Calls a function of `tf.io.gfile`; retries after transient errors.

    Args:
        doing: the operation, for error messages.
        function: name of the function.
        path: its first argument.
        more: its other arguments.
        retry: the `Retry` policy.
        done: function that returns whether the call succeeded in spite of an error; the
            store's response may have been lost.
    """

    def once():
        try:
            return getattr(_gfile(path), function)(path, *more)
        except Exception:
            if done is None or not done():
                raise

    return _attempt(doing, path, once, retry)


def rename(old, new, retry):
    """Moves a file or folder; the caller must have checked both paths with `stat`."""

    def done():
        return _is_absent(old) and not _is_absent(new)

    call("rename", "rename", old, new, retry=retry, done=done)


def remove(path, function, retry):
    """Removes a file ("remove"), or a folder and its contents ("rmtree")."""
    call("remove", function, path, retry=retry, done=lambda: _is_absent(path))


class RandomReader:
    """Reads parts of a file, one thread at a time; reopens it after errors."""

    def __init__(self, path, retry):
        self._path, self._retry = path, retry
        self._lock, self._worker = threading.Lock(), deadline.Worker()
        # Only the worker thread may close the file: closing a broken one may block.
        self._file = []
        self.close = weakref.finalize(self, _end, self._worker, self._file)

    def read(self, start, length):
        """Returns `length` bytes from `start`, or fewer at the end of the file."""

        def read():
            try:
                if not self._file:
                    self._file.append(_gfile(self._path).GFile(self._path, "rb"))
                self._file[0].seek(start)
                return self._file[0].read(length)
            except Exception:
                _close(self._file)
                raise

        with self._lock:
            return _attempt("read", self._path, read, self._retry, self._worker)


def _end(worker, file):
    with worker:
        worker.start(functools.partial(_close, file))


def _close(file):
    """Closes the file in a list, if any, and ignores the errors of a broken one."""
    while file:
        with contextlib.suppress(Exception):
            file.pop().close()


def write(path, make_pieces, retry, algorithm):
    """Writes a file, from the start in each attempt; returns its manifest entry."""

    def write_once():
        return _write_once(path, make_pieces(), retry.limit_s, algorithm)

    return _repeat("write", path, write_once, retry)


def _write_once(path, pieces, limit_s, algorithm):
    digest, size, gfile = checksums.ALGORITHMS[algorithm](), 0, _gfile(path)
    with deadline.Worker() as worker:

        def run(function, *arguments):
            call = gfiles.reporting()(functools.partial(function, *arguments))
            return worker.run(call, limit_s, f"write {path}")

        # If this fails, there may be an older file, which is kept.
        file = run(_create, gfile, path)
        try:
            for piece in map(bytes, pieces):
                run(file.write, piece)
                digest.update(piece)
                size += len(piece)
            run(file.close)
            if (stored := run(gfile.stat, path).length) != size:
                raise gfiles.GFileError(f"{stored} of {size} bytes arrived")
        except BaseException:
            # Only the worker thread may close the file: closing a broken one may block.
            # It may also store what has been written.
            closed = worker.start(functools.partial(_close, [file]))
            concurrent.futures.wait([closed], min(limit_s, ONCE.limit_s))
            try:
                remove(path, "remove", ONCE)
            except OSError as error:
                logging.warning("Could not remove the partial file %s: %s", path, error)
            raise
    return {"bytes": size, algorithm: digest.hexdigest()}


def _create(gfile, path):
    file = gfile.GFile(path, "wb")
    file.write(b"")  # TensorFlow creates the file only now
    return file


def _attempt(doing, path, function, retry, worker=None):
    """Makes a call on another thread, with retries and a time limit per attempt."""
    reported = gfiles.reporting()(function)

    def once():
        with contextlib.nullcontext(worker) if worker else deadline.Worker() as runner:
            return runner.run(reported, retry.limit_s, f"{doing} {path}")

    return _repeat(doing, path, once, retry)


def _repeat(doing, path, function, retry):
    """Calls `function` until it succeeds, fails permanently, or is out of attempts."""
    wait = retry.first_wait_s
    for attempt in range(1, retry.tries + 1):
        try:
            return function()
        except gfiles.GFileError as error:
            if attempt == retry.tries or error.is_final:
                raise _translate(error, doing, path, retry is not ONCE) from error
            following = f"Attempt {attempt + 1} of {retry.tries} in {wait:.1f} s."
            logging.warning("Could not %s %s (%s). %s", doing, path, error, following)
        time.sleep(wait)
        wait *= 2


def _is_absent(path):
    """Returns whether the store confirms, in one attempt, that the path is missing."""
    with contextlib.suppress(errors.StorageError):
        return stat(path, ONCE) is None
    return False


def _translate(error, doing, path, diagnose):
    """Returns the OSError to raise; with `diagnose`, includes the server's state."""
    words, number = str(error), error.number
    if error.is_final and number in (errno.ENOENT, errno.EEXIST):
        return OSError(number, os.strerror(number), path)
    if words.startswith("Unknown error"):
        words += "; the store's own message may be above, on standard error"
    message = f"Could not {doing} {path}: {words}."
    if diagnose and number in (None, errno.EIO) and scheme_of(path) in HADOOP_SCHEMES:
        advice = (
            "A new process can reach it, so restart this one if it used Hadoop before."
        )
        message = f"{message} {hdfs.why_unreachable(root_of(path)) or advice}"
    return errors.StorageError(message, number)


def in_tensorflow(path):
    """Returns whether TensorFlow itself can open files on the path's store."""
    import tensorflow as tf

    return _gfile(path) is tf.io.gfile


def _gfile(path):
    return gfiles.find(root_of(path))
