"""Each missing piece of a set-up has a message of its own."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CODE = """
import sys
from plsc_tf.storage import hdfs
try:
    hdfs.prepare_hdfs(sys.argv[1], timeout_s=float(sys.argv[2]))
except OSError as error:
    sys.stdout.write(f"{type(error).__name__} {error.errno}: {error}")
sys.exit("tensorflow" in sys.modules)
"""


@pytest.fixture
def prepare(hdfs):
    """Function of an address and changes of the environment; returns what was said."""

    def run(uri=None, timeout_s=30, **changes):
        environment = {**hdfs.environment(), "PYTHONPATH": str(ROOT), **changes}
        environment = {key: text for key, text in environment.items() if text}
        done = subprocess.run(
            [sys.executable, "-c", CODE, uri or f"{hdfs.uri}/a", str(timeout_s)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        # The answer comes before TensorFlow is imported, which takes seconds.
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_no_java(prepare, tmp_path):
    said = prepare(JAVA_HOME="", PATH=str(tmp_path), LD_LIBRARY_PATH="")
    assert said.startswith("StorageError None: HDFS needs Java, and libjvm.so was not")
    assert "Install Java 17" in said


def test_java_home_of_no_java(prepare, tmp_path):
    said = prepare(JAVA_HOME=str(tmp_path))
    assert "JAVA_HOME has none in lib/server" in said
    assert f"Received: JAVA_HOME={tmp_path}." in said


def test_no_libhdfs(prepare, tmp_path):
    said = prepare(HADOOP_HDFS_HOME=str(tmp_path))
    assert "HDFS needs libhdfs.so of a Hadoop installation, and there is none" in said
    assert f"Received: HADOOP_HDFS_HOME='{tmp_path}'. Set HADOOP_HDFS_HOME" in said


def test_a_libhdfs_that_does_not_load(prepare, tmp_path):
    library = tmp_path / "lib/native/libhdfs.so"
    library.parent.mkdir(parents=True)
    library.write_text("no library")
    assert f"{library} cannot be loaded" in prepare(HADOOP_HDFS_HOME=str(tmp_path))


def test_no_class_path(prepare, tmp_path):
    said = prepare(CLASSPATH="", PATH=str(tmp_path))
    assert "CLASSPATH is not set. Set it to the output of `hadoop classpath" in said


def test_a_class_path_that_does_not_exist(prepare, tmp_path):
    said = prepare(CLASSPATH=f"{tmp_path}/none:{tmp_path}/jars/*")
    assert "no file or folder in CLASSPATH exists" in said


def test_a_class_path_without_hadoop(prepare, tmp_path):
    said = prepare(CLASSPATH=str(tmp_path))
    assert "CLASSPATH lacks Hadoop's jars: set it to `hadoop classpath" in said


def test_nobody_listens(prepare):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        said = prepare(f"hdfs://127.0.0.1:{port}/a")
    assert (
        f"hdfs://127.0.0.1:{port}/ is unreachable: the connection was refused" in said
    )


def test_an_unknown_host(prepare):
    said = prepare("hdfs://no-such-host.invalid:9000/a")
    assert "is unreachable: the host no-such-host.invalid is unknown" in said


def test_a_server_that_accepts_and_never_answers(prepare):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        port = server.getsockname()[1]
        said = prepare(f"hdfs://127.0.0.1:{port}/a", timeout_s=3)
    assert "is unreachable: no answer within 3 seconds" in said


def test_the_class_path_of_an_installed_hadoop(prepare, tmp_path, hdfs):
    program = tmp_path / "hadoop"
    class_path = hdfs.environment()["CLASSPATH"]
    program.write_text(
        f"#!/bin/sh\n[ $1$2 = classpath--glob ] && echo '{class_path}'\n"
    )
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        # Java ran and Hadoop's classes were found: it got as far as the connection.
        said = prepare(f"hdfs://127.0.0.1:{port}/a", CLASSPATH="", PATH=path)
    assert "the connection was refused" in said
