"""What a real HDFS is made of, from the package index: jars, libhdfs.so, a client.

pyspark 2.4.8 contains Hadoop 2.7.3 with its servers, pydoop 2.0.0 the C sources of
libhdfs, and hdfs-native is a client that shares no code with either. They are fetched
once, into $PLSC_TF_HDFS_CACHE or ~/.cache/plsc_tf-tests.
"""

import dataclasses
import glob
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

PYSPARK, PYDOOP = "pyspark-2.4.8.tar.gz", "pydoop-2.0.0.tar.gz"
SHA256 = {
    PYSPARK: "3a19b71b8dc8dd91ebc943604a05e1ab01bce052456d42937035632d852d78dc",
    PYDOOP: "c7eb2ad8c36d2a75dc1c6cee701928334614f2e862a70798b0cb278e3102f77d",
}
CLIENT_JARS = """commons-cli-1.2 commons-collections-3.2.2 commons-configuration-1.6
    commons-io-2.4 commons-lang-2.6 commons-logging-1.1.3 guava-14.0.1
    hadoop-auth-2.7.3 hadoop-common-2.7.3 hadoop-hdfs-2.7.3
    htrace-core-3.1.0-incubating log4j-1.2.17 protobuf-java-2.5.0 slf4j-api-1.7.16
    slf4j-log4j12-1.7.16""".split()
SERVER_JARS = """commons-codec-1.10 jackson-core-asl-1.9.13 jackson-mapper-asl-1.9.13
    javax.servlet-api-3.1.0 javax.ws.rs-api-2.0.1 jetty-6.1.26 jetty-util-6.1.26
    netty-all-4.1.47.Final""".split()


class MissingError(Exception):
    """Something that is needed is not on this machine, in words for the skip."""


@dataclasses.dataclass(frozen=True)
class Packages:
    """Where everything is."""

    java_home: pathlib.Path
    root: pathlib.Path
    client_jars = property(lambda self: self.root / "client")
    server_jars = property(lambda self: self.root / "server")
    hadoop_home = property(lambda self: self.root / "hadoop")
    python_path = property(lambda self: self.root / "python")


def prepare():
    """Returns the `Packages`, fetched and built if they are not there yet."""
    java_home = find_java()
    cache = os.environ.get("PLSC_TF_HDFS_CACHE") or "~/.cache/plsc_tf-tests"
    root = pathlib.Path(cache).expanduser() / "hdfs-1"
    if not root.exists():
        if not shutil.which("gcc"):
            raise MissingError("no gcc to build libhdfs with (Debian: gcc)")
        root.parent.mkdir(parents=True, exist_ok=True)
        made = pathlib.Path(tempfile.mkdtemp(dir=root.parent))
        try:
            _make(made, java_home)
            # Another test process may have been faster.
            if not root.exists():
                made.rename(root)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return Packages(java_home, root)


def find_java():
    """The home of a JDK that Hadoop 2.7 runs on: 17 was tried, 24 and later fail."""
    homes = [os.environ.get("JAVA_HOME", ""), *glob.glob("/usr/lib/jvm/*17*")]
    if program := shutil.which("java"):
        homes.append(str(pathlib.Path(program).resolve().parents[1]))
    for home in map(pathlib.Path, filter(None, homes)):
        release = home / "release"
        if not release.exists() or not (home / "include/jni.h").exists():
            continue
        version = re.search(r'JAVA_VERSION="(\d+)', release.read_text())
        if version and 17 <= int(version[1]) < 24:
            return home
    raise MissingError("no JDK 17 with jni.h (Debian: openjdk-17-jdk-headless)")


def _make(root, java_home):
    tools, downloads = root / "python", root / "downloads"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    # setuptools and wheel: the two source packages must not be built in isolation.
    needed = ["setuptools<81", "wheel", "hdfs-native==0.14.7"]
    _run([*pip, "install", "--target", str(tools), *needed])
    environment = {**os.environ, "PYTHONPATH": str(tools)}
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    wanted = ["pyspark==2.4.8", "pydoop==2.0.0"]
    _run([*pip, "download", *options, "-d", str(downloads), *wanted], environment)
    for name, sha256 in SHA256.items():
        with open(downloads / name, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise MissingError(f"{name} of the package index is another file")
    _unpack_jars(downloads / PYSPARK, root)
    _build_libhdfs(downloads / PYDOOP, root, java_home)
    shutil.rmtree(downloads)


def _unpack_jars(archive, root):
    folders = dict.fromkeys(CLIENT_JARS, root / "client")
    folders |= dict.fromkeys(SERVER_JARS, root / "server")
    for folder in set(folders.values()):
        folder.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            path = pathlib.PurePosixPath(member.name)
            if path.stem in folders and path.parts[1:3] == ("deps", "jars"):
                content = tar.extractfile(member).read()
                (folders.pop(path.stem) / path.name).write_bytes(content)
    if folders:
        raise MissingError(f"pyspark lacks the jars {sorted(folders)}")


def _build_libhdfs(archive, root, java_home):
    with tarfile.open(archive) as tar:
        tar.extractall(root / "downloads", filter="data")
    source = root / "downloads/pydoop-2.0.0/src/libhdfs"
    library = root / "hadoop/lib/native/libhdfs.so"
    library.parent.mkdir(parents=True)
    includes = [source, source / "include", source / "os/posix"]
    includes += [java_home / "include", java_home / "include/linux"]
    names = ("hdfs.c", "jni_helper.c", "exception.c", "common/htable.c")
    files = [source / name for name in names] + sorted(source.glob("os/posix/*.c"))
    # Linked to libjvm.so without a path to it, as Apache's is.
    _run(
        ["gcc", "-O2", "-fPIC", "-w", "-shared", "-DHAVE_BETTER_TLS", "-D_GNU_SOURCE"]
        + [f"-I{folder}" for folder in includes]
        + files
        + [f"-L{java_home}/lib/server", "-ljvm", "-o", str(library)]
    )


def _run(command, environment=None):
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        text = (done.stderr or done.stdout).strip()[-500:]
        raise MissingError(f"{' '.join(command[:4])} ... failed: {text}")
