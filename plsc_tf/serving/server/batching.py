"""Many requests, one call: pictures wait until a batch is free, and go together.

Nobody waits for others to come: a picture goes with the next batch that starts. The
more of them came meanwhile, the larger that batch is. Sizes are powers of two, which
the model has been warmed up with; what is missing is filled with a picture's copy.

Of the sizes that fit, the one that costs least per picture is taken, of those that
take no longer than half the latency bound: a picture waits for a batch that has begun,
and is in the next one. Only where small batches cost much more than large ones, the
bound gives way: then all would wait the longer for it.

All methods belong to the thread of the event loop; only the model's call does not.
"""

import asyncio
import collections
import math

import numpy as np
import tensorflow as tf

from plsc_tf.serving.server.errors import RequestError, invalid

# How fast the measured speed follows: a share of the last batch.
_FOLLOW = 0.1
# How much more a picture may cost in a batch that keeps the latency bound.
_WORTH = 1.25
# What TensorFlow raises when an input is wrong, as opposed to the machine.
_INPUT_ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.OutOfRangeError,
)


def sizes_up_to(largest):
    """Powers of two up to `largest`."""
    return [1 << power for power in range(largest.bit_length())]


class _Request:
    """A caller's rows: a future, and the outputs that are still missing."""

    def __init__(self, count, loop):
        self.future = loop.create_future()
        self.results = [None] * count
        self.missing = count

    def add(self, index, outputs):
        self.results[index] = outputs
        self.missing -= 1
        if not self.missing and not self.future.done():
            self.future.set_result(
                {
                    name: np.stack([row[name] for row in self.results])
                    for name in outputs
                }
            )

    def fail(self, error):
        if not self.future.done():
            self.future.set_exception(error)


class Batcher:
    """The queue in front of one signature of one loaded model."""

    def __init__(self, model, signature, executor, options, metrics):
        """Starts empty.

        Args:
            model: the `LoadedModel`, warmed up.
            signature: name of the signature.
            executor: threads that call the model.
            options: the option group `server`.
            metrics: the `Metrics`.
        """
        self._model, self._signature = model, signature
        self._executor, self._metrics = executor, metrics
        self._options = options
        self._sizes = sizes_up_to(options.max_batch_images)
        self._pixels = options.max_megapixels * 1e6
        self._slower = 1.0
        self._waiting = collections.deque()
        self._running = 0

    @property
    def idle(self):
        """Whether nothing waits or is being computed."""
        return not self._waiting and not self._running

    async def run(self, rows, weights):
        """Returns the outputs of rows that share batches with those of others.

        Args:
            rows: list of dicts, input name -> bytes or array of one row.
            weights: pixels of each row, 0 where it needs no decoding.

        Returns:
            dict, output name -> array [len(rows), ...].

        Raises:
            RequestError: too many wait already, it took too long, or a row is wrong.
        """
        if len(self._waiting) + len(rows) > self._options.queue_images:
            raise RequestError(
                "UNAVAILABLE",
                f"{len(self._waiting)} pictures are waiting already.",
                retry_after=self.seconds_to_empty(),
            )
        request = _Request(len(rows), asyncio.get_running_loop())
        for index, (row, weight) in enumerate(zip(rows, weights, strict=True)):
            self._waiting.append((request, index, row, weight))
        self._start()
        try:
            async with asyncio.timeout(self._options.answer_timeout):
                return await request.future
        except TimeoutError:
            raise RequestError(
                "DEADLINE_EXCEEDED",
                f"Not answered within {self._options.answer_timeout:g} s.",
                retry_after=self.seconds_to_empty(),
            ) from None

    def seconds_to_empty(self):
        """Whole seconds, at least one, that the pictures that wait will take."""
        best = min(self._cost(size) / size for size in self._sizes)
        return max(1, math.ceil(best * len(self._waiting)))

    def _cost(self, size):
        return self._model.seconds.get(size, 0.0) * self._slower

    def _start(self):
        """Hands over batches as long as there are rows and free places."""
        while self._waiting and self._running < self._options.parallel_batches:
            batch, size = self._next()
            if batch:
                self._running += 1
                task = asyncio.get_running_loop().create_task(
                    self._compute(batch, size)
                )
                task.add_done_callback(lambda task: task.result())

    def _next(self):
        """The oldest rows that callers still wait for, and the size of their batch."""
        batch, pixels = [], 0
        while self._waiting and len(batch) < self._sizes[-1]:
            request, _, _, weight = self._waiting[0]
            if request.future.done():
                self._waiting.popleft()
                continue
            if batch and pixels + weight > self._pixels:
                break
            pixels += weight
            batch.append(self._waiting.popleft())
        size = self._size(len(batch)) if batch else 0
        while len(batch) > size:
            self._waiting.appendleft(batch.pop())
        self._metrics.waiting.set(len(self._waiting))
        return batch, size

    def _size(self, count):
        enough = next(size for size in self._sizes if size >= count)
        prices = {
            size: self._cost(size) / min(size, count)
            for size in self._sizes
            if size <= enough
        }
        cheap = [
            size
            for size, price in prices.items()
            if price <= _WORTH * min(prices.values())
        ]
        half = self._options.latency_ms / 2000
        fitting = [size for size in cheap if self._cost(size) <= half]
        # Of equal prices the larger size: it leaves fewer to wait.
        return min(reversed(fitting), key=prices.get) if fitting else cheap[0]

    async def _compute(self, batch, size):
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            outputs = await loop.run_in_executor(
                self._executor, self._call, [row for _, _, row, _ in batch], size
            )
        except _INPUT_ERRORS as error:
            self._split(batch, error)
        except Exception as error:  # noqa: BLE001 - the callers must be told
            failure = RequestError(
                "INTERNAL", f"The model failed: {_first_line(error)}"
            )
            failure.__cause__ = error
            for request, *_ in batch:
                request.fail(failure)
        else:
            self._learn(size, loop.time() - start)
            self._metrics.batch(len(batch))
            for place, (request, index, *_) in enumerate(batch):
                request.add(index, {name: a[place] for name, a in outputs.items()})
        finally:
            self._running -= 1
            self._start()

    def _call(self, rows, size):
        """Runs in a thread of the executor."""
        inputs = {}
        for name, first in rows[0].items():
            column = [row[name] for row in rows]
            if isinstance(first, bytes):
                filling = min(column, key=len)
                inputs[name] = column + [filling] * (size - len(column))
            else:
                inputs[name] = np.stack(column + [first] * (size - len(column)))
        return self._model.run(self._signature, inputs)

    def _split(self, batch, error):
        """Finds the row that spoiled a batch: halves run again, before all others.

        Decoding comes before the network, so such a batch has cost little.
        """
        if len(batch) == 1:
            (request, index, *_) = batch[0]
            request.fail(invalid(f"Picture {index}: {_first_line(error)}"))
            return
        loop = asyncio.get_running_loop()
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            size = next(n for n in self._sizes if n >= len(half))
            self._running += 1
            task = loop.create_task(self._compute(half, size))
            task.add_done_callback(lambda task: task.result())

    def _learn(self, size, seconds):
        """Follows how busy the machine is, for all sizes at once."""
        expected = self._model.seconds.get(size)
        if expected:
            self._slower += _FOLLOW * (seconds / expected - self._slower)


def _first_line(error):
    message = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in message.splitlines()]
    # Where the operation was defined is of no use to a caller.
    useful = [
        line
        for line in lines
        if line and not line.startswith(("Graph execution", "Detected at", "File "))
    ]
    return (useful or ["unknown error"])[0][:300]
