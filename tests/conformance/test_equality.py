"""The same seed, data and global batch give the same curve on any replica count.

Global batches of 10 do not divide by 3 and 4, 11 classes by none of 2, 3 and 4, and
the last batch of an epoch of 77 images is smaller.
"""

import functools
import json

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.parallel.addresses import free_addresses
from plsc_tf.parallel.group import SingleWorker
from tests import programs
from tests.conformance.loss_curve import CASES, losses
from tests.marks import slow

WORKERS = (2, 3)


@pytest.fixture(scope="module")
def curves():
    """Function of a case and a number of replicas: (20 losses, sums of the rows)."""

    @functools.cache
    def train(case, replicas):
        return losses(plsc_tf.strategy(replicas), SingleWorker(), **CASES[case])

    yield train
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="module")
def cluster_curves():
    """`{(workers, index): {case: 20 losses}}` of processes that train together."""
    found = {}
    for count in WORKERS:
        words = "-m", "tests.conformance.loss_curve", ",".join(free_addresses(count))
        ended = programs.run_together([(*words, index) for index in range(count)])
        for index, done in enumerate(ended):
            found[count, index] = json.loads(done.out.splitlines()[-1])
    return found


TOLERANCES = dict.fromkeys(CASES, 1e-5) | {"float64": 1e-9}
# With Partial FC, each replica samples its own classes, so the curves differ. Three
# replicas divide neither the batch nor the classes.
QUICK = [("float64", 3), ("synchronized", 3)]
ALL = [(case, replicas) for case in TOLERANCES for replicas in (2, 3, 4)]
SLOW = [one for one in ALL if one[0] != "partial_fc" and one not in QUICK]


def compare(found, expected, tolerance):
    assert [loss is None for loss in found] == [loss is None for loss in expected]
    seen, wanted = ([x for x in one if x is not None] for one in (found, expected))
    np.testing.assert_allclose(seen, wanted, rtol=tolerance)


@pytest.mark.parametrize(("case", "replicas"), [*QUICK, *(slow(*one) for one in SLOW)])
def test_loss_curves_are_equal(curves, case, replicas):
    alone, _ = curves(case, 1)
    assert len(alone) == 20 and alone[-1] != alone[-2]
    assert (None in alone) == (case == "loss_scale")
    compare(curves(case, replicas)[0], alone, TOLERANCES[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", TOLERANCES)
@pytest.mark.parametrize("workers", WORKERS)
def test_workers_train_like_one_process(curves, cluster_curves, workers, case):
    for index in range(workers):
        found, rows = cluster_curves[workers, index][case]
        expected, all_rows = curves(case, workers)
        compare(found, expected, TOLERANCES[case])
        # Every worker can read all rows, although it stores only its own.
        bounds = {"rtol": 100 * TOLERANCES[case], "atol": 1e-6}
        np.testing.assert_allclose(rows, all_rows, **bounds)
