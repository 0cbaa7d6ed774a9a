"""Each missing piece of a set-up has a message of its own."""

import contextlib
import os
import socket

import pytest

from tests import programs

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
    """Function of an address and changes of the environment; returns the error."""

    def run(uri=None, timeout_s=30, **changes):
        environ = {**dict.fromkeys(os.environ), **hdfs.environment()}
        environ |= {"PYTHONPATH": str(programs.ROOT), **changes}
        environ = {name: text or None for name, text in environ.items()}
        # The answer comes before TensorFlow is imported, which takes seconds.
        words = "-c", CODE, uri or f"{hdfs.uri}/a", timeout_s
        return programs.run(*words, timeout=60, **environ).out

    return run


@contextlib.contextmanager
def a_port(listens):
    """The address of a port that refuses connections, or never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen(5)
        yield f"hdfs://127.0.0.1:{server.getsockname()[1]}/"


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        (
            {"JAVA_HOME": "", "PATH": "{}", "LD_LIBRARY_PATH": ""},
            ["StorageError None: HDFS needs Java's libjvm.so, which cannot be loaded"],
        ),
        ({"JAVA_HOME": "{}"}, ["Received: JAVA_HOME='{}'. Set JAVA_HOME to"]),
        (
            {"HADOOP_HDFS_HOME": "{}"},
            ["HDFS needs libhdfs.so of Hadoop", "Received: HADOOP_HDFS_HOME='{}'. Set"],
        ),
        (
            {"HADOOP_HDFS_HOME": "{}/broken"},
            ["cannot be loaded: {}/broken/lib/native/libhdfs.so: "],
        ),
        (
            {"CLASSPATH": "", "PATH": "{}"},
            ["no file or folder in CLASSPATH exists", "`hadoop classpath --glob`"],
        ),
        (
            {"CLASSPATH": "{}/none:{}/jars/*"},
            ["Received: CLASSPATH='{}/none:{}/jars/*'. Before Python starts, set it"],
        ),
        ({"CLASSPATH": "{}"}, ["CLASSPATH lacks Hadoop's jars", "`hadoop classpath"]),
    ],
)
def test_a_missing_piece_is_named(prepare, tmp_path, changes, messages):
    library = tmp_path / "broken/lib/native/libhdfs.so"
    library.parent.mkdir(parents=True)
    library.write_text("no library")
    here = str(tmp_path)
    said = prepare(**{name: text.replace("{}", here) for name, text in changes.items()})
    for message in messages:
        assert message.replace("{}", here) in said


@pytest.mark.parametrize(
    ("listens", "limit_s", "message"),
    [
        (False, 30, "the connection was refused"),
        (True, 3, "no answer within 3 seconds"),
    ],
)
def test_a_server_that_does_not_answer(prepare, listens, limit_s, message):
    with a_port(listens) as root:
        said = prepare(f"{root}a", timeout_s=limit_s)
    assert f"{root} is unreachable: {message}" in said


def test_an_unknown_host(prepare):
    said = prepare("hdfs://no-such-host.invalid:9000/a")
    assert "is unreachable: the host no-such-host.invalid is unknown" in said


def test_the_class_path_of_an_installed_hadoop(prepare, tmp_path, hdfs):
    program = tmp_path / "hadoop"
    class_path = hdfs.environment()["CLASSPATH"]
    program.write_text(
        f"#!/bin/sh\n[ $1$2 = classpath--glob ] && echo '{class_path}'\n"
    )
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    with a_port(False) as root:
        # Java ran and Hadoop's classes were found: it got as far as the connection.
        said = prepare(f"{root}a", CLASSPATH="", PATH=path)
    assert "the connection was refused" in said
