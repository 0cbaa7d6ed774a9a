"""What Hadoop's client needs of this process: Java, libhdfs, CLASSPATH, options.

tensorflow-io reads the environment at its first call, so it can be completed here.
"""

import ctypes
import glob
import os
import shutil
import subprocess

from absl import logging

from plsc_tf.storage.errors import StorageError

_JVM_FOLDERS = ("lib/server", "jre/lib/server", "jre/lib/amd64/server")
_CLASS_PATH_ADVICE = (
    "Set it to the output of `hadoop classpath --glob`, before Python starts or in "
    "os.environ; the folder with core-site.xml and hdfs-site.xml comes first."
)


def load_java():
    """Loads libjvm.so into the process, for libhdfs to find, and returns its path."""
    path = _find_libjvm()
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise StorageError(
            f"HDFS needs Java, and {path} cannot be loaded: {error}. "
            "Install a Java 17 for this machine and set JAVA_HOME to it."
        ) from error
    return path


def load_libhdfs():
    """Loads libhdfs.so as tensorflow-io will, and returns its path or name."""
    home = os.environ.get("HADOOP_HDFS_HOME", "")
    if not home and _libhdfs_below(os.environ.get("HADOOP_HOME", "")):
        home = os.environ["HADOOP_HDFS_HOME"] = os.environ["HADOOP_HOME"]
    path = _libhdfs_below(home) or "libhdfs.so"
    try:
        ctypes.CDLL(path)
    except OSError as error:
        if path == "libhdfs.so" and "cannot open shared object" in str(error):
            raise StorageError(
                "HDFS needs libhdfs.so of a Hadoop installation, and there is none: "
                "neither in $HADOOP_HDFS_HOME/lib/native nor in LD_LIBRARY_PATH. "
                f"Received: HADOOP_HDFS_HOME='{home}'. Set HADOOP_HDFS_HOME to "
                "Hadoop's folder."
            ) from error
        raise StorageError(
            f"HDFS needs libhdfs.so, and {path} cannot be loaded: {error}. Take one "
            "that was built for this machine."
        ) from error
    return path


def set_class_path():
    """Completes CLASSPATH: asks `hadoop` for a missing one, and expands wildcards."""
    text = os.environ.get("CLASSPATH", "").strip()
    if not text:
        text = _ask_hadoop()
    if not text:
        raise StorageError(
            "HDFS needs Hadoop's jars, and CLASSPATH is not set. " + _CLASS_PATH_ADVICE
        )
    entries = expand_class_path(text)
    if not any(map(os.path.exists, entries)):
        raise StorageError(
            "HDFS needs Hadoop's jars, and no file or folder in CLASSPATH exists. "
            f"Received: {text[:200]}. " + _CLASS_PATH_ADVICE
        )
    os.environ["CLASSPATH"] = os.pathsep.join(entries)


def expand_class_path(text):
    """Returns the entries of a class path, jars instead of `folder/*`.

    Java expands wildcards on its command line only, not for a library.
    """
    entries = []
    for entry in filter(None, text.split(os.pathsep)):
        if os.path.basename(entry) == "*":
            entries += sorted(glob.glob(glob.escape(entry[:-1]) + "*.[jJ][aA][rR]"))
        else:
            entries.append(entry)
    return entries


def set_java_options():
    """Makes Java leave SIGINT, SIGTERM and SIGHUP to Python.

    Without -Xrs Ctrl-C kills the process, and a handler of SIGTERM never runs.
    """
    options = os.environ.get("LIBHDFS_OPTS", "").split()
    if "-Xrs" not in options:
        os.environ["LIBHDFS_OPTS"] = " ".join([*options, "-Xrs"])


def _find_libjvm():
    home, program = os.environ.get("JAVA_HOME", ""), shutil.which("java")
    if home:
        homes, folders = [home], []
    else:
        homes = [os.path.dirname(os.path.dirname(os.path.realpath(program or "/")))]
        folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    below = [os.path.join(home, folder) for home in homes for folder in _JVM_FOLDERS]
    for folder in (*below, *filter(None, folders)):
        path = os.path.join(folder, "libjvm.so")
        if os.path.exists(path):
            return path
    if home:
        raise StorageError(
            f"HDFS needs Java's libjvm.so, and JAVA_HOME has none in "
            f"{', '.join(_JVM_FOLDERS)}. Received: JAVA_HOME={home}. Set it to the "
            "folder of a Java 17."
        )
    raise StorageError(
        "HDFS needs Java, and libjvm.so was not found: JAVA_HOME is not set, there is "
        "no java on PATH, and LD_LIBRARY_PATH does not name its folder. Install Java "
        "17 (Debian: openjdk-17-jdk-headless) and set JAVA_HOME."
    )


def _libhdfs_below(home):
    path = os.path.join(home, "lib/native/libhdfs.so")
    return path if home and os.path.exists(path) else None


def _ask_hadoop():
    """Returns the class path that an installed `hadoop` tells, or nothing."""
    home = os.environ.get("HADOOP_HOME") or os.environ.get("HADOOP_HDFS_HOME", "")
    program = shutil.which("hadoop") or shutil.which(os.path.join(home, "bin/hadoop"))
    if not program:
        return ""
    try:
        done = subprocess.run(
            [program, "classpath", "--glob"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode == 0:
        logging.info("CLASSPATH was not set; it is now that of %s.", program)
    return done.stdout.strip() if done.returncode == 0 else ""
