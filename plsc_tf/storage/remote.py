"""The operations of `plsc_tf.storage.files` on the schemes of `tf.io.gfile`.

TensorFlow's `exists`, `isdir` and `listdir` answer "no" when a server is down. Here
only `stat` decides, and only its NotFoundError means absent.
"""

import contextlib
import dataclasses
import errno
import hashlib
import os
import threading
import time
import weakref

from absl import logging

from plsc_tf.storage import hdfs, oss
from plsc_tf.storage.deadline import Worker
from plsc_tf.storage.errors import StorageError, from_tensorflow, number_of
from plsc_tf.storage.paths import HADOOP_SCHEMES, FileStat, root_of, scheme_of


@dataclasses.dataclass(frozen=True)
class Retry:
    """How often and how long to try what a passing fault may have stopped.

    Attributes:
        tries: attempts in all.
        first_wait_s: seconds before the second attempt; doubled before each more.
        limit_s: seconds that one call of the store may take. A hanging call is not
            repeated.
    """

    tries: int = 5
    first_wait_s: float = 0.6
    limit_s: float = 300.0


ONCE = Retry(tries=1, limit_s=30.0)


def stat(path, retry):
    """Returns the `FileStat`, None if there is nothing."""
    tf = _tensorflow()

    def look():
        try:
            status = tf.io.gfile.stat(path)
        except tf.errors.NotFoundError:
            return None
        folder = status.is_directory
        return FileStat(folder, 0 if folder else status.length, status.mtime_nsec)

    return _attempt("look at", path, look, retry)


def call(doing, function, path, *more, retry, done=None):
    """Returns `tf.io.gfile.<function>(path, *more)`, repeated after passing faults.

    Args:
        doing: the operation, for errors.
        function: name of the function.
        path: its first argument.
        more: its other arguments.
        retry: the `Retry`.
        done: function that tells whether the work was done although an error was
            raised: the answer may be lost.
    """
    tf = _tensorflow()

    def once():
        try:
            return getattr(tf.io.gfile, function)(path, *more)
        except tf.errors.OpError:
            if done is None or not done():
                raise

    return _attempt(doing, path, once, retry)


def rename(old, new, retry):
    """Moves a file or folder that `stat` has seen to a name that it has not."""

    def done():
        return _is_absent(old) and not _is_absent(new)

    call("rename", "rename", old, new, retry=retry, done=done)


def remove(path, function, retry):
    """Removes a file ("remove"), or a folder and all below it ("rmtree")."""
    call("remove", function, path, retry=retry, done=lambda: _is_absent(path))


class RandomReader:
    """Reads parts of a file, one thread at a time; opens it again after faults."""

    def __init__(self, path, retry):
        self._path, self._retry = path, retry
        self._lock, self._worker = threading.Lock(), Worker()
        # Only the worker holds the file: closing a broken one may block.
        self._file = []
        self.close = weakref.finalize(self, _end, self._worker, self._file)

    def read(self, start, length, stop=None):
        """Returns these bytes, fewer at the end of the file.

        With `stop`, where the file is known to end, none at all are a fault, which is
        read again: another process may be writing it anew.
        """
        tf = _tensorflow()

        def read():
            if not self._file:
                self._file.append(tf.io.gfile.GFile(self._path, "rb"))
            try:
                self._file[0].seek(start)
                content = self._file[0].read(length)
                if stop is not None and not content:
                    raise tf.errors.DataLossError(
                        None, None, f"{self._path}; it ends before byte {stop}"
                    )
                return content
            except tf.errors.OpError:
                self._file.clear()
                raise

        with self._lock:
            return _attempt("read", self._path, read, self._retry, self._worker)


def _end(worker, file):
    worker.start(file.clear)
    worker.__exit__()


def write(path, make_pieces, retry):
    """Writes a file anew at every attempt; returns (bytes, SHA-256)."""

    def write_once():
        return _write_once(path, make_pieces(), retry.limit_s)

    return _repeat("write", path, write_once, retry)


def _write_once(path, pieces, limit_s):
    tf, digest = _tensorflow(), hashlib.sha256()
    doing, opened = f"write {path}", False
    try:
        with Worker() as worker:
            # Only the worker holds the file: closing a broken one may block.
            held = [worker.run(lambda: tf.io.gfile.GFile(path, "wb"), limit_s, doing)]
            try:
                worker.run(lambda: held[0].write(b""), limit_s, doing)
                opened = True
                contents = map(bytes, pieces)

                def put(content):
                    held[0].write(content)

                size = worker.share(contents, digest.update, put, limit_s, doing)
                worker.run(lambda: held[0].close(), limit_s, doing)
            finally:
                worker.start(held.clear)
            stored = worker.run(lambda: tf.io.gfile.stat(path).length, limit_s, doing)
        if stored != size:
            raise tf.errors.DataLossError(
                None, None, f"{path}; {stored} bytes arrived of {size}"
            )
    except Exception:
        # What could not be opened may be an older file, which stays.
        if opened:
            _discard(path)
        raise
    return size, digest.hexdigest()


def _discard(path):
    """Removes what is left of a file, if that is possible at once."""
    try:
        if stat(path, ONCE) is not None:
            remove(path, "remove", ONCE)
    except OSError as error:
        logging.warning("What is left of %s stays: %s", path, error)


def check_scheme(path):
    """Raises a StorageError unless TensorFlow has the file system of `path`.

    tensorflow-io, which brings more of them, is imported only if that is needed.
    """
    tf = _tensorflow()
    scheme, problem = scheme_of(path), ""
    if scheme not in tf.io.gfile.get_registered_schemes():
        problem = hdfs.load_plugins()
    known = tf.io.gfile.get_registered_schemes()
    if scheme not in known:
        raise StorageError(
            f"TensorFlow has no file system for {scheme}://. Received: {path}. It has "
            f"{', '.join(filter(None, sorted(known)))}. {problem}"
        )
    if scheme == "oss" and not oss.holds_keys(path):
        raise StorageError(
            "oss:// is for dataset_dir only: tensorflow-io takes an unreachable server "
            f"for an empty folder. Received: {path}. Use a local folder, HDFS or S3."
        )


def _attempt(doing, path, function, retry, worker=None):
    """Makes a call in a thread, each attempt within the limit."""

    def once():
        with contextlib.nullcontext(worker) if worker else Worker() as runner:
            return runner.run(function, retry.limit_s, f"{doing} {path}")

    return _repeat(doing, path, once, retry)


def _repeat(doing, path, function, retry):
    """Calls `function` until it works; what a repetition cannot heal ends it."""
    tf = _tensorflow()
    wait = retry.first_wait_s
    for attempt in range(1, retry.tries + 1):
        try:
            return function()
        except tf.errors.OpError as error:
            if attempt == retry.tries or _is_final(error):
                raise _translate(error, doing, path, retry is not ONCE) from error
            reason = str(error.message).rpartition(";")[2].strip()
            following = f"Attempt {attempt + 1} of {retry.tries} in {wait:.1f} s."
            problem = f"Could not {doing} {oss.masked(path)} ({reason})."
            logging.warning("%s %s", problem, following)
        time.sleep(wait)
        wait *= 2


def _is_absent(path):
    """Whether the store says for certain, at once, that nothing is there."""
    try:
        return stat(path, ONCE) is None
    except StorageError:
        return False


def _is_final(error):
    """Whether the same call would fail in the same way again."""
    names = "NotFound AlreadyExists PermissionDenied Unauthenticated InvalidArgument"
    names += " Unimplemented ResourceExhausted"
    return type(error).__name__.removesuffix("Error") in names.split()


def _translate(error, doing, path, diagnose):
    """Returns the error for the caller, on request with the store's state in it."""
    errors = _tensorflow().errors
    if isinstance(error, errors.NotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, errors.AlreadyExistsError):
        return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    hint, unknown = "", number_of(error) in (None, errno.EIO)
    if diagnose and unknown and scheme_of(path) in HADOOP_SCHEMES:
        hint = hdfs.why_unreachable(root_of(path))
    return from_tensorflow(error, doing, path, hint)


def _tensorflow():
    import tensorflow as tf

    return tf
