"""The same seed, data and global batch give the same curve on any replica count.

Global batches of 10 do not divide by 3 and 4, 11 classes by none of 2, 3 and 4, and
the last batch of an epoch of 77 images is smaller.
"""

import functools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from plsc_tf.parallel.addresses import free_ports

ROOT = pathlib.Path(__file__).parents[2]


# Against one; of the others 3 divides nothing here.
REPLICAS = (
    3,
    pytest.param(2, marks=pytest.mark.slow),
    pytest.param(4, marks=pytest.mark.slow),
)
WORKERS = (2, 3)


def free_addresses(count):
    """So many addresses of this machine that nobody listens on."""
    return [f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", count)]


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.loss_curve", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(processes):
    """What each of them printed, by the same keys."""
    printed = {key: process.communicate() for key, process in processes.items()}
    for key, process in processes.items():
        assert process.returncode == 0, printed[key][1]
    return {key: json.loads(out.splitlines()[-1]) for key, (out, _) in printed.items()}


@pytest.fixture(scope="module")
def curves():
    """Function of a number of replicas, which trains on them: `{case: 20 losses}`."""

    @functools.cache
    def train(replicas):
        return finish({replicas: start(replicas)})[replicas]

    return train


@pytest.fixture(scope="module")
def cluster_curves():
    """`{(workers, index): {case: 20 losses}}` of processes that train together."""
    found = {}
    for count in WORKERS:
        addresses = ",".join(free_addresses(count))
        started = {(count, i): start(addresses, i) for i in range(count)}
        found.update(finish(started))
    return found


TOLERANCES = {
    "float32": 1e-5,
    "float64": 1e-9,
    "synchronized": 1e-5,
    "partial_fc": 1e-5,
    "loss_scale": 1e-5,
}
# Of Partial FC each replica draws its own classes.
ANY_REPLICAS = [case for case in TOLERANCES if case != "partial_fc"]


def compare(found, expected, tolerance):
    assert [loss is None for loss in found] == [loss is None for loss in expected]
    seen, wanted = ([x for x in one if x is not None] for one in (found, expected))
    np.testing.assert_allclose(seen, wanted, rtol=tolerance)


@pytest.mark.parametrize("case", ANY_REPLICAS)
@pytest.mark.parametrize("replicas", REPLICAS)
def test_loss_curves_are_equal(curves, replicas, case):
    alone = curves(1)[case]
    assert len(alone) == 20 and alone[-1] != alone[-2]
    assert (None in alone) == (case == "loss_scale")
    compare(curves(replicas)[case], alone, TOLERANCES[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", TOLERANCES)
@pytest.mark.parametrize("workers", WORKERS)
def test_workers_train_like_the_replicas_of_one_process(
    curves, cluster_curves, workers, case
):
    for index in range(workers):
        found, expected = cluster_curves[workers, index], curves(workers)
        compare(found[case], expected[case], TOLERANCES[case])
        # Every worker can ask for all rows, of which it holds its own.
        rows = [one[f"{case} rows"] for one in (found, expected)]
        np.testing.assert_allclose(*rows, rtol=100 * TOLERANCES[case], atol=1e-6)
