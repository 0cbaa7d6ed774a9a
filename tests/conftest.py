"""The common machinery of the tests.

* `logical_devices`: four CPU replicas in each test process.
* `finished_run`: one finished training per process, which any test may read (evaluate,
  export, embed, load) but not write into: copy its folder, or resume it elsewhere.
* `tests/jobs/tiny_run.py`: settings of such a training for a run of the test's own; by
  default it neither verifies nor exports, because these take half of its time.
* `tests/commands.py`: `run("train", "--flagfile=...")` runs a command in this process.

TensorFlow takes six seconds to start, a training five or more: share them.
"""

import dataclasses
import os
import pathlib

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A training that has ended: its folder, and its results."""

    folder: pathlib.Path
    outcome: dict


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, logical_devices):
    """A `FinishedRun` of `tests/jobs/tiny_run.py`, verified and exported."""
    from plsc_tf.jobs import train
    from tests.jobs.tiny_run import FULL, settings

    folder = tmp_path_factory.mktemp("finished") / "run"
    _, outcome = train.train(settings(folder, **FULL))
    return FinishedRun(folder, outcome)


@pytest.fixture(scope="session")
def data_dir():
    """Folder with unpacked real image sets, named by PLSC_TF_TEST_DATA."""
    folder = os.environ.get("PLSC_TF_TEST_DATA", "")
    if not folder:
        pytest.skip("PLSC_TF_TEST_DATA is not set: no real images to test on")
    return pathlib.Path(folder)


@pytest.fixture(scope="session", autouse=True)
def logical_devices():
    """Four CPU replicas; set once, because TensorFlow cannot change them later."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 4
    )
    return tf.config.list_logical_devices("CPU")
