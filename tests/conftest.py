"""Fixtures that tests share, and the scheduling of tests.

* `logical_devices`: four CPU replicas in each test process.
* `finished_run`: one finished training run per process. Tests may read it (evaluate,
  export, embed, load) but must not write to it. Copy its folder, or resume elsewhere.
* `tests/jobs/tiny_run.py`: settings of a tiny run, for tests that need their own
  run. By default it neither verifies nor exports, which would double its time.
* `tests/commands.py`: `run("train", "--flagfile=...")` runs a command in this process.

TensorFlow takes six seconds to start and a training run five or more, so share them.

`python -m pytest` runs the whole suite with two processes per core (pytest-xdist). All
tests of a file, or of a folder in SHARED, run in the same process. If only a part of
the suite is selected, with `-n0`, or without pytest-xdist, all tests run in pytest's
own process.
"""

import functools
import os
import pathlib
import types

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# The replicas of tests are CPU devices, also in the processes that tests start.
# PLSC_TF_TEST_ON_GPUS=1 leaves GPUs visible, for those that work on any device.
if not os.environ.get("PLSC_TF_TEST_ON_GPUS"):
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
TESTS = pathlib.Path(__file__).parent
# Folders whose tests share something that takes long to set up.
SHARED = ("boost", "classes", "hdfs", "reporting", "server")
# These start first; otherwise a long test could run alone at the end.
LONGEST = (
    "hdfs",
    "cluster/test_cluster_training.py",
    "conformance/test_zoo.py",
    "cluster/test_two_hosts.py",
    "seeds/test_plsc.py",
    "jobs/test_run.py",
    "conformance/test_head_matrix.py",
    "conformance/test_notebooks.py",
    "seeds/test_mindspore.py",
    "parallel/test_collectives.py",
    "evaluation/test_command.py",
)


def unit(file):
    """Returns the unit of a test file, a folder in SHARED or the file itself.

    All tests of a unit run in the same process.
    """
    path = pathlib.Path(file).relative_to("tests")
    return path.parts[0] if path.parts[0] in SHARED else str(path)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Runs the whole suite on all cores."""
    if hasattr(config, "workerinput"):
        return  # this is a process of pytest-xdist, which must not start others
    whole = [pathlib.Path(arg).resolve() for arg in config.args] == [TESTS]
    if whole and config.getoption("numprocesses", 0) is None:
        # Two processes per core, because tests of workers and of HDFS mostly wait.
        config.option.numprocesses = 2 * len(os.sched_getaffinity(0))
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Returns a scheduler that distributes units in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit(nodeid.partition("::")[0])

    return ByUnit(config, log)


def pytest_collection_modifyitems(items):
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    files = {item: item.path.relative_to(TESTS.parent) for item in items}
    items.sort(key=lambda item: ranks.get(unit(files[item]), len(ranks)))


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, logical_devices):
    """The folder and the outcome of a run of `tests/jobs/tiny_run.py` with `FULL`."""
    from plsc_tf.jobs import train
    from tests.jobs.tiny_run import FULL, settings

    folder = tmp_path_factory.mktemp("finished") / "run"
    _, outcome = train.train(settings(folder, **FULL))
    return types.SimpleNamespace(folder=folder, outcome=outcome)


@pytest.fixture(scope="session", autouse=True)
def mock_pairs_drawn_once():
    """Keeps the verification pairs of `mock`, which take a second to draw."""
    from plsc_tf.datasets import mock

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(mock, "pairs", functools.cache(mock.pairs))
        yield


@pytest.fixture
def caplog(caplog):
    """pytest's own, with all that plsc_tf logs."""
    caplog.set_level("INFO", logger="absl")
    return caplog


@pytest.fixture
def set_policy():
    """Sets Keras's precision policy for one test."""
    import keras

    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


@pytest.fixture
def float64(set_policy):
    """Makes everything that is made in a test float64."""
    import keras

    keras.config.set_floatx("float64")
    set_policy("float64")
    yield
    keras.config.set_floatx("float32")


@pytest.fixture
def gfile_root(tmp_path, monkeypatch):
    """The `file://` URL of a folder that is accessed through TensorFlow's file systems.

    The fixture disables the library's shortcut for local paths, so `file://` is treated
    as a remote store. TensorFlow's `ram://` cannot be used: it appends instead of
    overwriting, and loses the files of a renamed folder.
    """
    from plsc_tf.storage import paths

    monkeypatch.setattr(
        paths, "scheme_of", lambda path: str(path).rpartition("://")[0].lower()
    )
    return f"file://{tmp_path}"


@pytest.fixture(scope="session")
def data_dir():
    """Folder with unpacked real image sets, from PLSC_TF_TEST_DATA."""
    if not (folder := os.environ.get("PLSC_TF_TEST_DATA", "")):
        pytest.skip("PLSC_TF_TEST_DATA is not set: no real images to test on")
    return pathlib.Path(folder)


@pytest.fixture(scope="session", autouse=True)
def logical_devices():
    """Four logical CPU devices; TensorFlow can set their number only once."""
    import tensorflow as tf

    # GPUs would round float32 products to 10 bits, and the oracles do not.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * 4
    tf.config.set_logical_device_configuration(cpu, devices)
    return tf.config.list_logical_devices("CPU")
