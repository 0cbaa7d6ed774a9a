"""Defines the storage layer's errors and converts TensorFlow's errors to them."""

import errno
import os

_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


class StorageError(OSError):
    """Raised if a store could not be used, and never because a file is missing.

    Attributes:
        errno: the system's error number (`errno.EACCES`, `errno.ENOSPC`,
            `errno.ETIMEDOUT`, ...), or None if the store didn't report one.
    """

    def __init__(self, message, number=None):
        super().__init__(message)
        self.errno = number


def from_tensorflow(error, doing, path, hint=""):
    """Converts a `tf.errors.OpError` to a `StorageError`.

    Args:
        error: the error that `tf.io.gfile` raised.
        doing: the operation that failed, such as "read".
        path: the file or folder.
        hint: a sentence about the store's state.
    """
    # TensorFlow's message is "<path>; <the system's message>".
    words = str(error.message).rpartition(";")[2].strip() or type(error).__name__
    if words.startswith("Unknown error"):
        words += "; the store's own message may be above, on standard error"
    return StorageError(
        f"Could not {doing} {path}: {words}.{' ' if hint else ''}{hint}",
        number_of(error),
    )


def number_of(error):
    """Returns the `errno` that a TensorFlow error's message implies, or None."""
    return _NUMBERS.get(str(error.message).rpartition(";")[2].strip())
