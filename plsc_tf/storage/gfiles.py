"""Finds a library that accesses a remote store: TensorFlow or pyarrow.

tensorflow-io adds `hdfs://` and `s3://` to TensorFlow, but it does not load on
TensorFlow 2.18 and later. Where TensorFlow has no file system for a scheme, pyarrow
accesses the store, with the interface of `tf.io.gfile`.
"""

import contextlib
import errno
import functools
import os
import re
import types
import urllib.parse
import warnings

from absl import logging

from plsc_tf.storage import oss
from plsc_tf.storage.errors import StorageError
from plsc_tf.storage.paths import HADOOP_SCHEMES, scheme_of

# Schemes that pyarrow supports.
_ARROW = {*HADOOP_SCHEMES, "s3"}
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
_KINDS = {"NotFoundError": errno.ENOENT, "AlreadyExistsError": errno.EEXIST}
# TensorFlow's errors and system errors that the same call would raise again.
_FINAL = {f"{kind}Error" for kind in ("PermissionDenied", "Unauthenticated")}
_FINAL |= {f"{kind}Error" for kind in ("InvalidArgument", "Unimplemented")}
_FINAL |= {"ResourceExhaustedError", *_KINDS, *_KINDS.values()}
_FINAL |= {errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}
# pyarrow raises the errors of S3 without a number.
_NO_ACCESS = re.compile("ACCESS_DENIED|INVALID_ACCESS|SIGNATURE_|HTTP status 403")


@functools.cache
def find(root):
    """Returns `tf.io.gfile`, or an object with the same functions, for a store's root.

    Imports tensorflow-io, which adds file systems, only if it is needed.

    Raises:
        StorageError: neither library can access the store, or the environment lacks
            its keys; the message says what to do.
    """
    import tensorflow as tf

    scheme, schemes = scheme_of(root), tf.io.gfile.get_registered_schemes
    if scheme == "oss":
        oss.with_keys(root)  # raises an error if there are none
    outcome = "" if scheme in schemes() else _load_plugins()
    if scheme in schemes():
        logging.info("%s:// is accessed with TensorFlow.", scheme)
        return oss.OssFiles(tf.io.gfile) if scheme == "oss" else tf.io.gfile
    problem = (
        f"TensorFlow has no file system for {scheme}://, only for "
        f"{', '.join(filter(None, sorted(schemes())))}. tensorflow-io adds others, but "
        "only to TensorFlow 2.17: pip install 'plsc_tf[tfio]' installs both. Received: "
        f"TensorFlow {tf.__version__}, {outcome}."
    )
    if scheme in _ARROW:
        try:
            import pyarrow.fs

            logging.info("%s:// is accessed with pyarrow.", scheme)
            return ArrowFiles(root, pyarrow.fs)
        except ImportError as error:
            advice = f"({error}): pip install pyarrow."
            problem = f"{scheme}:// needs pyarrow {advice} {problem}"
        except OSError as error:
            raise StorageError(f"Could not connect to {root}: {error}.") from error
    raise StorageError(problem)


def _load_plugins():
    """Imports tensorflow-io; returns its version or the problem."""
    try:
        with warnings.catch_warnings():
            # With an incompatible TensorFlow version, it only warns.
            warnings.simplefilter("ignore")
            import tensorflow_io
    except ImportError as error:
        return str(error)
    return f"tensorflow-io {tensorflow_io.__version__}"


class GFileError(Exception):
    """A call of a store failed; the message is the reason.

    Attributes:
        number: the system's error number, or None if unknown.
        is_final: whether the same call would fail in the same way again.
    """

    def __init__(self, reason, number=None, is_final=False):
        super().__init__(reason)
        self.number, self.is_final = number, is_final


@contextlib.contextmanager
def reporting():
    """Turns TensorFlow's and pyarrow's errors into a `GFileError`."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        # The message is "<path>; <the system's message>", and may have keys of oss://.
        kind = type(error).__name__
        words = oss.masked(str(error.message)).rpartition(";")[2].strip() or kind
        number = _KINDS.get(kind, _NUMBERS.get(words))
        raise GFileError(words, number, kind in _FINAL) from None
    except (OSError, NotImplementedError) as error:
        words, number = str(error), getattr(error, "errno", None)
        number = errno.EACCES if _NO_ACCESS.search(words) else number
        words = os.strerror(number) if number else words
        raise GFileError(words, _NUMBERS.get(words), number in _FINAL) from error


class ArrowFiles:
    """The functions of `tf.io.gfile` that `remote` calls, with pyarrow.

    Args:
        root: the root of the store.
        fs: the module pyarrow.fs.
    """

    def __init__(self, root, fs):
        self._root, self._fs = root, fs
        self._hadoop = scheme_of(root) in HADOOP_SCHEMES
        if self._hadoop:
            ticket = os.environ.get("KERB_TICKET_CACHE_PATH", "")
            query = f"?kerb_ticket={urllib.parse.quote(ticket)}" if ticket else ""
            self._store = fs.HadoopFileSystem.from_uri(root + query)
        else:
            # Other servers than Amazon's have no host name for each bucket; pyarrow
            # knows that only if it is given the address itself.
            endpoint = os.environ.get("AWS_ENDPOINT_URL")
            self._store = fs.S3FileSystem(endpoint_override=endpoint)

    def _place(self, path):
        """Returns pyarrow's form of a path: "/a" on HDFS, "bucket/a" on S3."""
        if self._hadoop:
            return "/" + path.removeprefix(self._root)
        return path.partition("://")[2].rstrip("/")

    def stat(self, path):
        """See `tf.io.gfile`."""
        info = self._store.get_file_info(self._place(path))
        if info.type == self._fs.FileType.NotFound:
            # On HDFS, every error looks like this. That of a listing says whether the
            # path does not exist or the server did not answer.
            self.listdir(path)
            info = self._store.get_file_info(self._place(path))
        folder = info.type == self._fs.FileType.Directory
        return types.SimpleNamespace(
            is_directory=folder, length=info.size, mtime_nsec=info.mtime_ns or 0
        )

    def listdir(self, path):
        """See `tf.io.gfile`."""
        selector = self._fs.FileSelector(self._place(path))
        return [info.base_name for info in self._store.get_file_info(selector)]

    def makedirs(self, path):
        """See `tf.io.gfile`; on S3, a folder is an empty object `name/`."""
        self._store.create_dir(self._place(path))

    def rename(self, old, new):
        """See `tf.io.gfile`; a folder on S3 is copied file by file."""
        if self._hadoop or not self.stat(old).is_directory:
            self._store.move(self._place(old), self._place(new))
            return
        places, both = map(self._place, (old, new)), [self._store] * 2
        self._fs.copy_files(*places, *both)
        self.rmtree(old)

    def remove(self, path):
        """See `tf.io.gfile`."""
        self._store.delete_file(self._place(path))

    def rmtree(self, path):
        """See `tf.io.gfile`."""
        self._store.delete_dir(self._place(path))

    def GFile(self, path, mode):  # noqa: N802 - TensorFlow's name
        """See `tf.io.gfile`; `mode` is "rb" or "wb"."""
        store = self._store
        open_file = store.open_input_file if mode == "rb" else store.open_output_stream
        return open_file(self._place(path))
