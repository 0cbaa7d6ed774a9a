"""Calls that may hang for ever, with a limit of time."""

import errno
import queue
import threading

from plsc_tf.storage.errors import StorageError


class Worker:
    """A thread that makes calls, so that its owner can wait for them or give up.

    A file system that accepts a connection and never answers blocks its caller in C,
    where no signal and no exception gets through. The owner waits in Python instead:
    Ctrl-C works, and after the limit the thread is left behind.
    """

    def __init__(self):
        self._calls = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._calls,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._calls.put(None)

    def start(self, function):
        """Begins a call, after those begun before; returns what `finish` takes."""
        answer = queue.SimpleQueue()
        self._calls.put((function, answer))
        return answer

    def finish(self, answer, limit_s=None, doing="call"):
        """Waits for a call and returns its value, or raises its error.

        Args:
            answer: what `start` returned.
            limit_s: seconds to wait at most; None: for ever.
            doing: what the call does, for the error.

        Raises:
            StorageError: no answer in time; `errno` is `ETIMEDOUT`.
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
        """Calls `there` with each piece, and `here` with the same one meanwhile.

        Args:
            pieces: iterable of buffers.
            here: function of one, in the owner's thread.
            there: function of one, in the worker's.
            limit_s, doing: as for `finish`.

        Returns:
            the bytes of all pieces.
        """
        size = 0
        for piece in pieces:
            answer = self.start(lambda p=piece: there(p))
            here(piece)
            self.finish(answer, limit_s, doing)
            size += len(piece)
        return size

    def run(self, function, limit_s=None, doing="call"):
        """Makes one call and waits for it, as `finish` does."""
        return self.finish(self.start(function), limit_s, doing)


def _work(calls):
    while (task := calls.get()) is not None:
        function, answer = task
        try:
            answer.put((function(), None))
        except BaseException as error:  # noqa: BLE001 - raised again by the owner
            answer.put((None, error))
        # A file that the call holds must not wait for the next call to be freed.
        del task, function, answer
