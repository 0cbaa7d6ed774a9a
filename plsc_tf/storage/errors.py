"""What the storage layer raises, and what TensorFlow's errors mean in its terms."""

import errno
import os

_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


class StorageError(OSError):
    """A store could not be used. It never means that a file is absent.

    Attributes:
        errno: the system's number where the store told one (`errno.EACCES`,
            `errno.ENOSPC`, `errno.ETIMEDOUT`, ...), else None.
    """

    def __init__(self, message, number=None):
        super().__init__(message)
        self.errno = number


def from_tensorflow(error, doing, path, hint=""):
    """Returns the error that stands for a `tf.errors.OpError`.

    Args:
        error: what `tf.io.gfile` raised.
        doing: what was tried, as in "read".
        path: the file or folder.
        hint: a sentence about the store's state.
    """
    # TensorFlow's text is "<path>; <the system's words>".
    words = str(error.message).rpartition(";")[2].strip() or type(error).__name__
    if words.startswith("Unknown error"):
        words += "; the store's own message may stand above, on standard error"
    return StorageError(
        f"Could not {doing} {path}: {words}.{' ' if hint else ''}{hint}",
        number_of(error),
    )


def number_of(error):
    """Returns the `errno` in the text of an error of TensorFlow, or None."""
    return _NUMBERS.get(str(error.message).rpartition(";")[2].strip())
