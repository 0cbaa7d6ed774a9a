"""Runs calls that may hang forever under a time limit."""

import errno
import queue
import threading

from plsc_tf.storage.errors import StorageError


class Worker:
    """Runs calls on a separate thread; its owner can stop waiting for them.

    A file system that accepts a connection and never answers blocks its caller in C
    code, which neither signals nor exceptions can interrupt. The owner waits in Python
    instead: Ctrl-C works, and the thread is abandoned after the time limit.
    """

    def __init__(self):
        self._calls = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._calls,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._calls.put(None)

    def start(self, function):
        """Queues a call after any earlier ones; returns a handle for `finish`."""
        answer = queue.SimpleQueue()
        self._calls.put((function, answer))
        return answer

    def finish(self, answer, limit_s=None, doing="call"):
        """Waits for a call and returns its value, or raises its error.

        Args:
            answer: the handle that `start` returned.
            limit_s: maximum number of seconds to wait, or None for no limit.
            doing: description of the call for the error message.

        Raises:
            StorageError: the call didn't finish in time; `errno` is `ETIMEDOUT`.
        """
        try:
            value, error = answer.get(timeout=limit_s)
        except queue.Empty:
            raise StorageError(
                f"Could not {doing}: no answer within {limit_s:g} seconds. The server "
                "accepts connections but does not answer, or the network is broken.",
                errno.ETIMEDOUT,
            ) from None
        if error is not None:
            raise error
        return value

    def share(self, pieces, here, there, limit_s=None, doing="call"):
        """Passes each piece to two functions, which run at the same time.

        Args:
            pieces: iterable of buffers.
            here: function of a piece, called on the owner's thread.
            there: function of a piece, called on the worker's thread.
            limit_s, doing: as for `finish`.

        Returns:
            the total number of bytes.
        """
        size = 0
        for piece in pieces:
            answer = self.start(lambda p=piece: there(p))
            here(piece)
            self.finish(answer, limit_s, doing)
            size += len(piece)
        return size

    def run(self, function, limit_s=None, doing="call"):
        """Makes one call and waits for it like `finish`."""
        return self.finish(self.start(function), limit_s, doing)


def _work(calls):
    while (task := calls.get()) is not None:
        function, answer = task
        try:
            answer.put((function(), None))
        except BaseException as error:  # noqa: BLE001 - raised again by the owner
            answer.put((None, error))
        # Otherwise a file that the call refers to would stay open until the next call.
        del task, function, answer
