"""Calls functions in a thread, in which the keys of clients take turns."""

import asyncio
import collections
import concurrent.futures
from collections.abc import Callable

from plsc_tf.serving.server import batching


class Turns:
    """A thread for what would keep the event loop busy for too long."""

    def __init__(self):
        # Several threads would only make the event loop wait longer for Python's lock,
        # and use more memory.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "turns")
        # A key waits for its own requests, others for one of them.
        self._turns = collections.defaultdict(asyncio.Lock)

    async def call(self, function: Callable, *arguments):
        """Returns what the function returns, or raises what it raises."""
        async with self._turns[batching.client.get()]:
            job = self._thread.submit(function, *arguments)
            work = asyncio.wrap_future(job)
            # Otherwise, asyncio logs the error of a client that is gone.
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                return await asyncio.shield(work)
            finally:
                # If the client is gone, its bytes count until the thread has finished.
                if not job.cancel():
                    await asyncio.wait([work])
