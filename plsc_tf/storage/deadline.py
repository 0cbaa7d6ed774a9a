"""Runs calls that may hang forever under a time limit."""

import concurrent.futures
import contextlib
import errno
import queue
import threading

from plsc_tf.storage.errors import StorageError


class Worker(contextlib.AbstractContextManager):
    """Runs calls on a separate thread; its owner can stop waiting for them.

    A file system that accepts a connection and never answers blocks its caller in C
    code, which neither signals nor exceptions can interrupt. The owner waits in Python
    instead: Ctrl-C works, and the thread is abandoned after the time limit.
    """

    def __init__(self):
        self._calls = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._calls,), daemon=True).start()

    def __exit__(self, *_):
        self._calls.put(None)

    def start(self, function):
        """Queues a call after any earlier ones; returns a handle for `finish`."""
        call = concurrent.futures.Future()
        self._calls.put((call, function))
        return call

    def finish(self, call, limit_s=None, doing="call"):
        """Waits for a call and returns its value, or raises its error.

        Args:
            call: the handle that `start` returned.
            limit_s: maximum number of seconds to wait, or None for no limit.
            doing: description of the call for the error message.

        Raises:
            StorageError: the call didn't finish in time; `errno` is `ETIMEDOUT`.
        """
        concurrent.futures.wait([call], limit_s)
        if not call.done():
            raise StorageError(
                f"Could not {doing}: no answer within {limit_s:g} seconds. The server "
                "accepts connections but does not answer, or the network is broken.",
                errno.ETIMEDOUT,
            )
        return call.result()

    def run(self, function, limit_s=None, doing="call"):
        """Makes one call and waits for it like `finish`."""
        return self.finish(self.start(function), limit_s, doing)


def _work(calls):
    while (task := calls.get()) is not None:
        call, function = task
        try:
            call.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the owner
            call.set_exception(error)
        # Otherwise a file that the call refers to would stay open until the next call.
        del task, call, function
