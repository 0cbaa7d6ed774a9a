"""Many requests, one call: images wait until a batch can start, and go together.

No image waits for others to come: it goes with the next batch that starts. The more
of them came meanwhile, the larger that batch is. Sizes are powers of two, which the
model has been warmed up with; copies of an image fill the rest.

Of the sizes that fit, the one that costs least per image is taken, of those that take
no longer than half the latency bound: an image waits for a batch that has begun, and is
in the next one. Only where small batches cost much more than large ones, the bound
gives way: all would wait even longer otherwise.

All methods belong to the thread of the event loop, except the model's call.
"""

import asyncio
import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from plsc_tf.serving.server.errors import RequestError, invalid

# How fast the measured speed follows: a share of the last batch.
_FOLLOW = 0.1
# How much more an image may cost in a batch that keeps the latency bound.
_WORTH = 1.25
# TensorFlow's errors for a wrong input, as opposed to the machine.
_INPUT_ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.OutOfRangeError,
)


def sizes_up_to(largest: int) -> list[int]:
    """Powers of two up to `largest`."""
    return [1 << power for power in range(largest.bit_length())]


class _Row(NamedTuple):
    """A row that waits: its inputs, and the future of its outputs."""

    future: asyncio.Future
    index: int
    inputs: dict
    pixels: int

    def fail(self, error):
        if not self.future.done():
            self.future.set_exception(error)


class Batcher:
    """The queue in front of one signature of one loaded model."""

    def __init__(self, model, signature: str, executor, options, metrics):
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
        self._slower = 1.0
        self._waiting = collections.deque()
        self._running = 0

    @property
    def idle(self) -> bool:
        """Whether no row waits or is being computed."""
        return not self._waiting and not self._running

    async def run(self, rows: Sequence[dict], pixels: Sequence[int]) -> dict:
        """Returns the outputs of rows that share batches with those of others.

        Args:
            rows: list of dicts, input name -> bytes or array of one row.
            pixels: of each row's image, 0 where it needs no decoding.

        Returns:
            dict, output name -> array [len(rows), ...].

        Raises:
            RequestError: too many wait already, it took too long, or a row is wrong.
        """
        if len(self._waiting) + len(rows) > self._options.queue_images:
            raise self._busy(
                "UNAVAILABLE", f"{len(self._waiting)} images are waiting already."
            )
        loop, seconds = asyncio.get_running_loop(), self._options.answer_timeout
        futures = [loop.create_future() for _ in rows]
        self._waiting.extend(map(_Row, futures, range(len(rows)), rows, pixels))
        self._start()
        try:
            async with asyncio.timeout(seconds):
                outputs = await asyncio.gather(*futures)
        except TimeoutError:
            message = f"Not answered within {seconds:g} s."
            raise self._busy("DEADLINE_EXCEEDED", message) from None
        finally:
            for future in futures:
                future.cancel()
        return {name: np.stack([row[name] for row in outputs]) for name in outputs[0]}

    def _busy(self, code, message):
        """An error with the seconds that the images that wait will take."""
        best = min(self._cost(size) / size for size in self._sizes)
        seconds = max(1, math.ceil(best * len(self._waiting)))
        return RequestError(code, message, retry_after=seconds)

    def _cost(self, size):
        return self._model.seconds.get(size, 0.0) * self._slower

    def _start(self):
        """Starts batches as long as there are rows and free places."""
        while self._waiting and self._running < self._options.parallel_batches:
            batch, size = self._next()
            if batch:
                self._spawn(batch, size)

    def _spawn(self, batch, size):
        self._running += 1
        task = asyncio.get_running_loop().create_task(self._compute(batch, size))
        task.add_done_callback(lambda task: task.result())

    def _next(self):
        """The oldest rows that callers still wait for, and the size of their batch."""
        batch, pixels = [], 0
        while self._waiting and len(batch) < self._sizes[-1]:
            row = self._waiting[0]
            if row.future.done():
                self._waiting.popleft()
                continue
            pixels += row.pixels
            if batch and pixels > self._options.max_megapixels * 1e6:
                break
            batch.append(self._waiting.popleft())
        size = self._size(len(batch)) if batch else 0
        while len(batch) > size:
            self._waiting.appendleft(batch.pop())
        self._metrics.waiting.set(len(self._waiting))
        return batch, size

    def _size(self, count):
        prices = {
            size: self._cost(size) / min(size, count)
            for size in self._sizes
            if size < 2 * count
        }
        limit = _WORTH * min(prices.values())
        cheap = [size for size, price in prices.items() if price <= limit]
        half = self._options.latency_ms / 2000
        fitting = [size for size in cheap if self._cost(size) <= half]
        # Of equal prices the larger size: it leaves fewer to wait.
        return min(reversed(fitting), key=prices.get) if fitting else cheap[0]

    async def _compute(self, batch, size):
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            inputs = [row.inputs for row in batch]
            outputs = await loop.run_in_executor(
                self._executor, self._call, inputs, size
            )
        except _INPUT_ERRORS as error:
            self._split(batch, error)
        except Exception as error:  # noqa: BLE001 - reported to the callers
            failure = RequestError(
                "INTERNAL", f"The model failed: {_first_line(error)}"
            )
            failure.__cause__ = error
            for row in batch:
                row.fail(failure)
        else:
            self._learn(size, loop.time() - start)
            self._metrics.batch(len(batch))
            for place, row in enumerate(batch):
                if not row.future.done():
                    row.future.set_result({k: a[place] for k, a in outputs.items()})
        finally:
            self._running -= 1
            self._start()

    def _call(self, rows, size):
        """Runs in a thread of the executor."""
        inputs = {}
        for name, first in rows[0].items():
            column = [row[name] for row in rows]
            if isinstance(first, bytes):
                inputs[name] = column + [min(column, key=len)] * (size - len(column))
            else:
                inputs[name] = np.stack(column + [first] * (size - len(column)))
        return self._model.run(self._signature, inputs)

    def _split(self, batch, error):
        """Finds the row that spoiled a batch: halves run again, before all others.

        Decoding comes before the network, so such a batch has cost little.
        """
        if len(batch) == 1:
            (row,) = batch
            row.fail(invalid(f"Image {row.index}: {_first_line(error)}"))
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            self._spawn(half, next(n for n in self._sizes if n >= len(half)))

    def _learn(self, size, seconds):
        """Follows how busy the machine is, for all sizes at once."""
        expected = self._model.seconds.get(size)
        if expected:
            self._slower += _FOLLOW * (seconds / expected - self._slower)


def _first_line(error):
    message = getattr(error, "message", None) or str(error)
    # Where the operation was defined is of no use to a caller.
    noise = ("Graph execution", "Detected at", "File ")
    lines = (line.strip() for line in message.splitlines())
    useful = (line for line in lines if line and not line.startswith(noise))
    return next(useful, "unknown error")[:300]
