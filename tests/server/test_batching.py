"""Who shares a batch with whom, and what becomes of them."""

import asyncio
import concurrent.futures
import gc
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.flags.server import Server
from plsc_tf.serving.server.app import Metrics
from plsc_tf.serving.server.batching import Batcher, client
from plsc_tf.serving.server.errors import RequestError


class Doubling:
    """A model that doubles numbers, refuses negative ones, and notes its batches."""

    def __init__(self, seconds=(), held=False):
        self.seconds = dict(seconds)
        self.batches, self.gate = [], threading.Event()
        if not held:
            self.gate.set()

    def run(self, signature, values):
        self.gate.wait(10)
        self.batches.append(values[:, 0].tolist())
        if (values < 0).any():
            raise tf.errors.InvalidArgumentError(None, None, "a negative number")
        return {"y": 2 * values}


def rows(*values):
    return np.array(values, np.float32)[:, None]


def run(model, work, **options):
    """Runs `work(batcher)` in an event loop."""

    async def main():
        given = Server(**{"parallel_batches": 1, "max_batch_images": 4, **options})
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            return await work(Batcher(model, "s", executor, given, Metrics()))

    return asyncio.run(main())


async def together(batcher, model, *batches):
    """Asks for batches at the same time; returns their results or errors."""
    calls = [batcher.run(rows(*values), [0] * len(values)) for values in batches]
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0.05)
    model.gate.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_one_call_for_several_requests_and_to_each_its_own():
    model = Doubling({1: 1e-3, 2: 1e-3, 4: 1e-3}, held=True)
    found = run(model, lambda b: together(b, model, [1], [2, 3], [4], [5]))
    assert [one["y"][:, 0].tolist() for one in found] == [[2], [4, 6], [8], [10]]
    # The first one went at once; the four others waited, and went together.
    assert model.batches == [[1], [2, 4, 5, 3]]


@pytest.mark.parametrize(
    ("seconds", "values", "latency_ms", "batches"),
    [
        # A batch is filled to a size that was warmed up.
        ((1.0, 1.1, 1.2), (1, 2, 3), 1e4, [[1, 2, 3, 1]]),
        # Four at 4 s would be 1.33 s for each of three; two at 2 s are 1 s for each.
        ((1.5, 2.0, 4.0), (1, 2, 3), 1e5, [[1, 2], [3]]),
        # 15 ms for each of two, 14 ms for each of four, but four take 56 ms, which is
        # more than half of the bound.
        ((0.02, 0.03, 0.056), (1, 2, 3, 4), 60.0, [[1, 2], [3, 4]]),
        # The bound gives way where small batches cost much more.
        ((0.2, 0.3, 0.4), (1, 2, 3, 4), 60.0, [[1, 2, 3, 4]]),
    ],
)
def test_the_size_that_costs_least_per_picture(seconds, values, latency_ms, batches):
    model = Doubling(zip((1, 2, 4), seconds, strict=True))
    asked = rows(*values), [0] * len(values)
    found = run(model, lambda batcher: batcher.run(*asked), latency_ms=latency_ms)
    np.testing.assert_array_equal(found["y"], 2 * rows(*values))
    assert model.batches == batches


def test_pixels_limit_a_batch():
    model = Doubling()
    run(model, lambda b: b.run(rows(1, 2, 3), [9e5, 2e5, 8e5]), max_megapixels=1.0)
    assert [batch[0] for batch in model.batches] == [1, 2]
    assert model.batches[1][:2] == [2, 3]
    # Copies of the image with most pixels would exceed the limit.
    model = Doubling(zip((1, 2, 4), (1.0, 1.1, 1.2), strict=True))
    run(model, lambda b: b.run(rows(1, 2, 3), [3e5, 1e5, 2e5]), latency_ms=1e4)
    assert model.batches == [[1, 2, 3, 2]]


def test_a_bad_row_fails_alone():
    model = Doubling({1: 1e-3, 2: 1e-3, 4: 1e-3}, held=True)
    batches = [0], [1], [2], [-3], [4]
    *good, bad, last = run(model, lambda b: together(b, model, *batches))
    assert [one["y"].tolist() for one in (*good, last)] == [[[0]], [[2]], [[4]], [[8]]]
    assert isinstance(bad, RequestError)
    assert bad.status == 400
    assert "a negative number" in bad.message


def test_a_request_ends_with_its_first_bad_row():
    # The others were tried after the answer, before those of others: 6 MB cost 22 s.
    model = Doubling({1: 1e-3, 2: 1e-3, 4: 1e-3})
    (error,) = run(model, lambda b: together(b, model, [-1, -2, -3, -4]))
    assert error.message == "Image 0: a negative number"
    assert [len(batch) for batch in model.batches] == [4, 2, 1]


def test_a_full_queue_refuses_and_says_when_to_come_again():
    model = Doubling({1: 3.0, 2: 6.0, 4: 12.0}, held=True)

    async def work(batcher):
        first = asyncio.create_task(batcher.run(rows(0), [0]))
        second = asyncio.create_task(batcher.run(rows(1, 2), [0, 0]))
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError) as caught:
            await batcher.run(rows(3, 4), [0, 0])
        model.gate.set()
        await asyncio.gather(first, second)
        return caught.value

    error = run(model, work, queue_images=3)
    assert (error.status, error.retry_after) == (503, 1)


@pytest.mark.parametrize(
    ("small", "computed"), [([5], [1, 5, 2, 3, 4]), ([5, 6], [1, 5])]
)
def test_a_costly_request_gives_way_to_others(small, computed):
    # A request of large images stopped all answers for 30 s.
    model = Doubling(held=True)

    async def work(batcher):
        costly = asyncio.create_task(batcher.run(rows(1, 2, 3, 4), [16e6] * 4))
        await asyncio.sleep(0.05)
        other = asyncio.create_task(batcher.run(rows(*small), [1e4] * len(small)))
        await asyncio.sleep(0.05)
        model.gate.set()
        await asyncio.wait([costly])
        return await other

    assert run(model, work, queue_images=4)["y"][0] == 10
    assert [batch[0] for batch in model.batches] == computed


def test_a_keys_requests_wait_for_each_other():
    # A key's many small requests kept the others out of the queue.
    model = Doubling(held=True)

    async def work(batcher):
        tasks = []
        for number, key in enumerate("aaaab"):
            client.set(key)
            tasks.append(asyncio.create_task(batcher.run(rows(number), [0])))
            await asyncio.sleep(0.05)
        model.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    *_, refused, other = run(model, work, queue_images=3)
    assert isinstance(refused, RequestError) and other["y"][0] == 8
    assert model.batches[1][:3] == [1, 4, 2]


def test_who_is_gone_leaves_no_images_behind():
    # Clients could fill the memory with large images, and wait for no answer.
    model = Doubling(held=True)

    async def work(batcher):
        first = asyncio.create_task(batcher.run(rows(1), [1]))
        large = rows(2)
        left = weakref.ref(large.base)  # which each row refers to
        gone = asyncio.create_task(batcher.run(large, [16e6]))
        del large
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.wait([gone])
        del gone
        gc.collect()
        was_freed = left() is None
        model.gate.set()
        await first
        return was_freed

    assert run(model, work)


def test_who_waits_too_long_is_told_so_and_not_computed():
    model = Doubling(held=True)

    async def work(batcher):
        first = asyncio.create_task(batcher.run(rows(0), [0]))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(batcher.run(rows(1), [0]))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(RequestError) as caught:
            await batcher.run(rows(2), [0])
        with pytest.raises(RequestError):
            await first
        model.gate.set()
        while not batcher.idle:
            await asyncio.sleep(0.01)
        return caught.value

    assert run(model, work, answer_timeout=0.1).status == 504
    assert model.batches == [[0]]


def test_a_failing_model_is_an_error_of_the_server():
    class Broken(Doubling):
        def run(self, signature, values):
            raise MemoryError("no memory left")

    with pytest.raises(RequestError, match="no memory left") as caught:
        run(Broken(), lambda b: b.run(rows(1, 2), [0, 0]))
    assert caught.value.status == 500
