"""A real HDFS for the tests of this folder, and a process that uses it.

Where Java, gcc or the package index is missing the tests are skipped, and say so;
PLSC_TF_REQUIRE_HDFS=1 makes that a failure.
"""

import json
import os
import pathlib
import re

import hdfs_cluster
import hdfs_driver
import hdfs_packages
import pytest
import tensorflow as tf

from tests import programs, required

USER = "trainer"
HERE = pathlib.Path(__file__).parent


def pytest_configure(config):
    config.addinivalue_line("markers", "hdfs: needs Java 17, gcc and a package index")


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.hdfs)
            # What only repeats whole trainings through the other library.
            repeated = "pyarrow" in item.name and item.path.stem != "test_hdfs_files"
            if repeated and tf.__version__.startswith("2.17."):
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def hdfs_servers(tmp_path_factory):
    try:
        cluster = hdfs_cluster.start(tmp_path_factory.mktemp("hdfs"))
    except hdfs_packages.MissingError as missing:
        required.skip("HDFS", f"HDFS: {missing}")
    yield cluster
    cluster.stop_all()


@pytest.fixture
def hdfs(hdfs_servers):
    """The running `hdfs_cluster.Hdfs`; what a test breaks is brought back."""
    yield hdfs_servers
    hdfs_servers.heal()


@pytest.fixture(scope="session")
def without_tensorflow_io(tmp_path_factory):
    """A folder for PYTHONPATH, where tensorflow-io cannot be imported."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "tensorflow_io.py").write_text("raise ImportError('hidden')")
    return str(folder)


@pytest.fixture(scope="session", params=["tensorflow-io", "pyarrow"])
def user_environment(request, hdfs_servers, without_tensorflow_io):
    """A user like others: whoever started the NameNode may do everything."""
    another_client(hdfs_servers, "give", f"{hdfs_servers.uri}/", USER)
    environment = {**hdfs_servers.environment(), "HADOOP_USER_NAME": USER}
    if request.param == "pyarrow":
        environment["PYTHONPATH"] = without_tensorflow_io
        if not os.environ.get("PLSC_TF_REQUIRE_HDFS"):
            pytest.importorskip("pyarrow")
    elif not tf.__version__.startswith("2.17."):
        pytest.skip("tensorflow-io needs TensorFlow 2.17")
    return environment


@pytest.fixture(scope="session")
def driver_process(user_environment, tmp_path_factory):
    log = tmp_path_factory.mktemp("driver") / "log.txt"
    process = hdfs_driver.Driver(user_environment, log)
    # Before the first use of HDFS, as a training run does.
    process.call("hdfs_checks:handle_sigterm")
    yield process
    process.stop()


@pytest.fixture
def driver(hdfs, driver_process):
    """The `hdfs_driver.Driver`, one process for all tests."""
    return driver_process


@pytest.fixture
def folder(hdfs, request):
    """A folder on HDFS of the test's own: its address."""
    return f"{hdfs.uri}/{re.sub(r'[^a-zA-Z0-9_]', '-', request.node.name)}"


@pytest.fixture
def seen_by_another_client(hdfs):
    """Function of an address that returns `{file: [bytes, blake3]}` below it."""
    return lambda address: json.loads(another_client(hdfs, "look", address))


@pytest.fixture
def written_by_another_client(hdfs):
    """Function of an address and a text that writes it, behind the library's back."""
    return lambda address, text: another_client(hdfs, "write", address, text)


def another_client(hdfs, command, address, *arguments):
    """Calls hdfs_client.py, as HDFS's own superuser; returns what it prints."""
    port, _, path = address.rpartition(":")[2].partition("/")
    words = HERE / "hdfs_client.py", port, command, f"/{path}", *arguments
    python_path = str(hdfs.packages.python_path)
    return programs.run(*words, timeout=60, PYTHONPATH=python_path).out
