"""Computes the images of several requests in one batch.

Waiting images join the next batch that starts; a batch never waits for more images to
arrive. The more images arrived during the previous batch, the larger the next one is.
Batch sizes are powers of two, for which the model has been warmed up; copies of an
image fill incomplete batches.

Among the batch sizes that take at most half of the latency bound, the batcher chooses
the one with the lowest cost per image. The bound is halved because an image may wait
for a running batch before its own starts. If all sizes within the bound cost much more
per image than larger ones, the batcher exceeds the bound, because the queue would
otherwise grow and all images would wait even longer.

Requests share the model fairly: while one with many or large images is computed, those
that arrive later and cost less are computed in between (weighted fair queueing, Demers
et al. 1989). A key's requests wait for each other.

All methods run in the event loop's thread, except the call of the model.
"""

import asyncio
import bisect
import contextvars
import itertools
import operator
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from plsc_tf.serving.server.errors import RequestError, invalid

# Name of the key of the current request; "" if clients need none.
client: contextvars.ContextVar[str] = contextvars.ContextVar("client", default="")
# Weight of the last batch in the moving average of the measured speed.
_LATEST_WEIGHT = 0.1
# A batch size counts as cheap if its cost per image is at most this times the lowest.
_CHEAP_RATIO = 1.25
# The errors that models raise for invalid inputs, not for failures of the machine.
_INPUT_ERRORS = (
    ValueError,
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.OutOfRangeError,
)


def sizes_up_to(largest: int) -> list[int]:
    """Returns the powers of two up to `largest`."""
    return [1 << power for power in range(largest.bit_length())]


class _Row(NamedTuple):
    """A waiting row: its value, and the future of its outputs.

    Rows are computed in the order of `place`; `futures` are those of its request.
    """

    future: asyncio.Future
    index: int
    value: bytes | np.ndarray
    pixels: int
    place: float
    futures: list
    key: str

    def fail(self, error):
        if not self.future.done():
            self.future.set_exception(error)


class Batcher:
    """The queue in front of one signature of one loaded model."""

    def __init__(self, model, signature: str, executor, options, metrics):
        """Creates an empty queue.

        Args:
            model: the `LoadedModel`, already warmed up.
            signature: name of the signature.
            executor: thread pool that calls the model.
            options: the option group `server`.
            metrics: the `Metrics`.
        """
        self._model, self._signature = model, signature
        self._executor, self._metrics = executor, metrics
        self._options = options
        self._sizes = sizes_up_to(options.max_batch_images)
        self._slowdown = 1.0
        self._waiting = []  # sorted by their places
        self._running = 0
        # An image without pixels costs as much as others that fill a batch.
        self._least_cost = options.max_megapixels * 1e6 / options.max_batch_images
        # Where a request without cost would be placed: the cost of the batches so far,
        # each divided by the number of requests that shared the model.
        self._place = 0.0

    @property
    def idle(self) -> bool:
        """True if no row is waiting or being computed."""
        return not self._waiting and not self._running

    async def run(self, rows: Sequence, pixels: Sequence[int]) -> dict:
        """Computes the outputs of rows, in batches shared with other requests.

        Args:
            rows: N bytes objects, or an array `[N, ...]`.
            pixels: number of pixels of each row's image, 0 if none needs decoding.

        Returns:
            {output name: array `[N, ...]`}.

        Raises:
            RequestError: the queue is full, the time limit has passed, a row is
                invalid, or the model failed.
        """
        loop, seconds = asyncio.get_running_loop(), self._options.answer_timeout
        futures, added, key = [], [], client.get()
        own = [row.place for row in self._waiting if key and row.key == key]
        place = max([self._place, *own[-1:]])
        for index, (row, count) in enumerate(zip(rows, pixels, strict=True)):
            place += count + self._least_cost
            futures.append(loop.create_future())
            added.append(_Row(futures[-1], index, row, count, place, futures, key))
        self._add(added)
        self._start()
        try:
            async with asyncio.timeout(seconds):
                outputs = await asyncio.gather(*futures)
        except TimeoutError:
            message = f"The server did not answer within {seconds:g} s."
            raise RequestError("DEADLINE_EXCEEDED", message, retry_after=1) from None
        finally:
            self._drop(futures)
            for future in futures:
                future.cancel()
        return {name: np.stack([row[name] for row in outputs]) for name in outputs[0]}

    def _add(self, rows):
        """Adds rows; if there are too many, refuses the requests that end last.

        A request ends with the first of its rows that fails, see `run`.
        """
        message = f"The server is busy: {len(self._waiting)} images already wait."
        for row in rows:
            bisect.insort(self._waiting, row, key=operator.attrgetter("place"))
        while len(self._waiting) > self._options.queue_images:
            last = self._waiting[-1]
            last.fail(RequestError("UNAVAILABLE", message, retry_after=1))
            self._drop(last.futures)

    def _drop(self, futures):
        """Removes the rows of a request, whose images need memory."""
        self._waiting = [row for row in self._waiting if row.futures is not futures]

    def _cost(self, size):
        return self._model.seconds.get(size, 0.0) * self._slowdown

    def _start(self):
        """Starts batches while rows are waiting and another batch may run."""
        while self._waiting and self._running < self._options.parallel_batches:
            batch, size = self._next()
            if batch:
                self._spawn(batch, size)

    def _spawn(self, batch, size):
        self._running += 1
        task = asyncio.get_running_loop().create_task(self._compute(batch, size))
        task.add_done_callback(lambda task: task.result())

    def _next(self):
        """Takes the next batch from the queue.

        Returns:
            (the oldest rows whose callers are still waiting, the batch size).
        """
        waiting = [row for row in self._waiting if not row.future.done()]
        pixels = [*itertools.accumulate(row.pixels for row in waiting)]
        fitting = bisect.bisect(pixels, self._options.max_megapixels * 1e6)
        # One image is computed, however large.
        count = min(max(1, fitting), self._sizes[-1], len(waiting))
        size = self._size(count) if count else 0
        end = min(count, size)
        batch, self._waiting = waiting[:end], waiting[end:]
        requests = {id(row.futures) for row in (*batch, *self._waiting)}
        cost = sum(row.pixels + self._least_cost for row in batch)
        self._place += cost / max(1, len(requests))
        self._metrics.waiting.set(len(self._waiting))
        return batch, size

    def _size(self, count):
        sizes = [size for size in self._sizes if size < 2 * count]
        prices = {size: self._cost(size) / min(size, count) for size in sizes}
        limit = _CHEAP_RATIO * min(prices.values())
        cheap = [size for size, price in prices.items() if price <= limit]
        half = self._options.latency_ms / 2000
        fitting = [size for size in cheap if self._cost(size) <= half]
        # Of two sizes with the same cost per image, prefer the larger one, which leaves
        # fewer images waiting.
        return min(reversed(fitting), key=prices.get) if fitting else cheap[0]

    async def _compute(self, batch, size):
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            call = self._executor, self._call, batch, size
            outputs = await loop.run_in_executor(*call)
        except _INPUT_ERRORS as error:
            self._split(batch, error)
        except Exception as error:  # noqa: BLE001 - reported to the callers
            failure = RequestError("INTERNAL", f"The model failed: {_reason(error)}")
            failure.__cause__ = error
            for row in batch:
                row.fail(failure)
        else:
            expected = self._model.seconds.get(size)
            if expected:  # The slowdown is shared by all batch sizes.
                change = (loop.time() - start) / expected - self._slowdown
                self._slowdown += _LATEST_WEIGHT * change
            self._metrics.images.inc(len(batch))
            self._metrics.batches.observe(len(batch))
            for place, row in enumerate(batch):
                if not row.future.done():
                    row.future.set_result({k: a[place] for k, a in outputs.items()})
        finally:
            self._running -= 1
            self._start()

    def _call(self, batch, size):
        """Fills the batch up to `size` and calls the model, in an executor thread."""
        # A small file may have many pixels.
        cheapest = min(batch, key=operator.attrgetter("pixels"))
        rows = [row.value for row in (*batch, *[cheapest] * (size - len(batch)))]
        values = rows if isinstance(rows[0], bytes) else np.stack(rows)
        return self._model.run(self._signature, values)

    def _split(self, batch, error):
        """Runs half of a failed batch again to find the invalid row.

        The other half is the next to run, unless its request has failed by then. The
        failed batch was cheap, because images are decoded before the network runs.
        """
        if len(batch) == 1:
            (row,) = batch
            row.fail(invalid(f"Image {row.index}: {_reason(error)}"))
            self._drop(row.futures)
            return
        middle = len(batch) // 2
        self._add(batch[middle:])
        self._spawn(batch[:middle], next(n for n in self._sizes if n >= middle))


def _reason(error):
    """Returns what happened, without where TensorFlow's operation was defined."""
    message = getattr(error, "message", None) or str(error) or "unknown error"
    message = re.sub(r"\{\{[^{}]*\}\}", "", message.partition("\n\t [[")[0])
    return message.strip().rpartition("\n")[2].strip()[:300]
