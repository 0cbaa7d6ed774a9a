"""Defines the error of the storage layer."""


class StorageError(OSError):
    """Raised if a store could not be used, and never because a file is missing.

    Attributes:
        errno: the system's error number (`errno.EACCES`, `errno.ENOSPC`,
            `errno.ETIMEDOUT`, ...), or None if the store didn't report one.
    """

    def __init__(self, message, number=None):
        super().__init__(message)
        self.errno = number
