"""Collectives of real workers, and of devices that have them, against numpy."""

import functools
import json
from collections import Counter

import numpy as np
import pytest

from plsc_tf.heads import memory
from plsc_tf.heads.memory import HeadLoad
from plsc_tf.parallel.addresses import free_addresses
from tests import programs
from tests.marks import slow
from tests.parallel import collectives_worker as worker

MOST_S = 300
KINDS = {
    "CollectiveGatherV2": "all-gather",
    "CollectiveReduceV2": "all-reduce",
    "CollectiveAllToAllV2": "reduce-scatter",
}


@functools.cache
def results(place, rounded):
    """What the first of several workers has found, or the devices of a process."""
    words = "-m", "tests.parallel.collectives_worker", rounded
    if place == "devices":
        commands = [(*words, 3)]
    else:
        addresses = ",".join(free_addresses(place))
        commands = [(*words, addresses, index) for index in range(place)]
    first, *_ = programs.run_together(commands, timeout=MOST_S)
    return json.loads(first.out.splitlines()[-1])


# Devices of a process exchange float16, workers bfloat16; `-m slow` runs the rest.
ROUNDED = {2: "bfloat16", 3: "bfloat16", "devices": "float16"}
TOLERANCES = {"float16": 1e-3, "bfloat16": 8e-3}


@pytest.fixture
def found(place):
    return results(place, ROUNDED[place])


every_place = pytest.mark.parametrize(
    ("place", "replicas"), [(2, 2), slow(3, 3), ("devices", 3)]
)
every_cluster = pytest.mark.parametrize("place", [2, slow(3)])


@every_place
def test_what_is_gathered_keeps_its_bits(found, place, replicas):
    drawn = [worker.drawn(r, (3, 5)) for r in range(replicas)]
    cubes = [worker.drawn(r, (3, 2, 2)) for r in range(replicas)]
    labels = [worker.LABELS[r + i] for r in range(replicas) for i in range(3)]
    bits = np.repeat(worker.BITS[:replicas], 3).tolist()
    floats, cubes = np.concatenate(drawn).tolist(), np.concatenate(cubes).tolist()
    assert found["gathered"] == [floats, labels, bits, cubes, floats, cubes]


@every_place
def test_four_tensors_travel_in_one_collective(found, place, replicas):
    # And the two that are alone in one each; a process has those of all its devices.
    counts = Counter(found["collectives"])
    assert counts["CollectiveGatherV2"] == 3 * (replicas if place == "devices" else 1)
    assert set(counts) == {"CollectiveGatherV2", "CollectiveAllToAllV2"}


@every_place
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reduce_scatter_adds_in_the_order_of_replicas(found, place, replicas, dtype):
    total = np.zeros((2, 3), dtype)
    for replica in range(replicas):
        total += worker.drawn(replica, (2 * replicas, 3))[:2].astype(dtype)
    assert found["scattered"][dtype] == total.tolist()


@every_cluster
def test_sums_and_what_they_send(found, place):
    sums = found["sums"]
    # 2,000,000 numbers go twice around a ring, but for one part of them.
    numbers = 2 * (place - 1) / place * 2_000_000
    # Three terms, each sum below 16: half of the last digit of each and of their sums.
    for dtype, error, size in (
        ("float32", 2e-6, 4),
        ("float16", 1.6e-2, 2),
        ("bfloat16", 1.3e-1, 2),
        ("buckets", 2e-6, 4),
    ):
        assert sums[dtype]["error"] <= error
        assert sums[dtype]["type"] == "float32"
        assert sums[dtype]["sent"] == pytest.approx(size * numbers, rel=0.03)
        count = 2 if dtype == "buckets" else 1
        assert sums[dtype]["collectives"] == ["CollectiveReduceV2"] * count


@every_cluster
@pytest.mark.parametrize(("step", "rate"), [("step", 1.0), ("sampled step", 0.5)])
def test_a_steps_collectives_are_those_of_the_table(found, place, step, rate):
    load = HeadLoad(
        num_classes=worker.CLASSES,
        embedding_size=worker.EMBEDDING,
        replicas=place,
        global_batch=worker.BATCH,
        sample_rate=rate,
    )
    weights = 192 * 32 + 32 + 32 * worker.EMBEDDING + worker.EMBEDDING
    ranks = 2 if rate == 1 else 0  # the model without metrics samples
    expected = Counter()
    for one in memory.collectives(load, 4 * weights, ranks=ranks):
        # A replica brings its part of what is gathered.
        share = place if one.kind == "all-gather" else 1
        kind = "reduce-scatter" if one.name == "embeddings' gradients" else one.kind
        expected[kind, one.bytes // share // one.count] += one.count
    if rate < 1:  # its gradients are clipped, by norms that travel with the votes
        expected["all-reduce", 4 * 4] -= 1
        expected["all-reduce", 4 * 5] += 1
    brought = Counter((KINDS[name], size) for name, size in found[step])
    assert brought == +expected
    assert brought.total() == 6 + 1  # and a bucket of gradients


@every_place
def test_training_is_the_same_wherever_it_runs(found, place, replicas):
    curves, reference = found["curves"], results(2, ROUNDED[2])["curves"]
    for name in ("loss", "accuracy", "top5_accuracy"):
        expected = reference["float32"][name]
        np.testing.assert_allclose(curves["float32"][name], expected, rtol=1e-5)
    assert reference["float32"]["loss"][-1] < 0.1 < 10 < reference["float32"]["loss"][0]


@pytest.mark.parametrize(
    ("place", "dtype"),
    [
        (2, "bfloat16"),
        ("devices", "float16"),
        slow(2, "float16"),
        slow("devices", "bfloat16"),
        slow(3, "bfloat16"),
    ],
)
def test_rounded_gradients_train_alike(place, dtype):
    curves = results(place, dtype)["curves"]
    exact, rounded = curves["float32"]["loss"], curves[dtype]["loss"]
    assert exact[0] == rounded[0] and exact[1:] != rounded[1:]
    np.testing.assert_allclose(rounded, exact, rtol=TOLERANCES[dtype])
