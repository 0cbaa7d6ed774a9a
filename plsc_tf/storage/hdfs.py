"""Makes `hdfs://` work in this process, or says which piece is missing.

tensorflow-io's own reactions to a missing piece are a file that "does not exist", an
"unknown error 255", or a process that hangs. So every piece is looked at beforehand,
and the server is asked in a process that can be ended.
"""

import errno
import os
import re
import subprocess
import sys
import warnings

from plsc_tf.storage import hadoop_env
from plsc_tf.storage.deadline import Worker
from plsc_tf.storage.errors import StorageError, from_tensorflow
from plsc_tf.storage.paths import root_of, scheme_of

_PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hdfs_probe.py")
# Java's exceptions, and what they mean to somebody who wants to train.
_REASONS = (
    (
        r"getSubject is not supported",
        "Hadoop's client does not run on Java 24 and later: set JAVA_HOME to a Java 17",
    ),
    (
        r"UnsupportedClassVersionError",
        "the Java is too old for these jars: set JAVA_HOME to a Java 17",
    ),
    (
        r"(?:NoClassDefFoundError|ClassNotFoundException): ([\w./$]+)",
        "CLASSPATH lacks the jar with {}: set it to `hadoop classpath --glob`",
    ),
    (
        r"NoClassDefFoundError|ClassNotFoundException",
        "CLASSPATH lacks Hadoop's jars: set it to `hadoop classpath --glob`",
    ),
    (
        r"No FileSystem for scheme",
        "CLASSPATH lacks hadoop-hdfs or hadoop-hdfs-client: set it to "
        "`hadoop classpath --glob`",
    ),
    (
        r"UnknownHostException: ([\w.-]+)",
        "the host {} is unknown. Is it spelled right, and if it is a nameservice, is "
        "the folder with hdfs-site.xml in CLASSPATH?",
    ),
    (
        r"Connection refused",
        "the connection was refused. Is the NameNode running, and is this its RPC port "
        "(fs.defaultFS in core-site.xml)?",
    ),
    (
        r"No route to host|Network is unreachable|ConnectTimeoutException",
        "there is no way to the host through the network",
    ),
    (
        r"Protocol message|RpcException|InvalidProtocolBuffer|EOFException|"
        r"RPC response exceeds",
        "something answers there, but it is no NameNode. Is this the RPC port "
        "(fs.defaultFS in core-site.xml), not that of the web page?",
    ),
    (r"StandbyException", "this NameNode is the standby one: use the nameservice"),
    (
        r"GSSException|SaslException|Client cannot authenticate|KerberosAuth",
        "the cluster wants Kerberos: call kinit, and set KERB_TICKET_CACHE_PATH",
    ),
    (r"AccessControlException: (.*)", "permission was denied: {}"),
    (r"Wrong FS: (.*)", "the address does not fit core-site.xml: {}"),
)


def prepare_hdfs(uri, timeout_s=60.0):
    """Sets up Hadoop's client for this process and reaches the file system once.

    It loads Java and libhdfs, expands CLASSPATH and adds -Xrs to LIBHDFS_OPTS;
    another process looks at the root; with tensorflow-io, this one does.

    Args:
        uri: any path on the file system, `hdfs://host:port/...`.
        timeout_s: seconds for each of the two looks.

    Raises:
        StorageError: it names the one missing piece, or why the server cannot be
            reached.
    """
    libjvm = hadoop_env.load_java()
    libhdfs = hadoop_env.load_libhdfs()
    hadoop_env.set_class_path()
    hadoop_env.set_java_options()
    root, scheme = root_of(uri), scheme_of(uri)
    if scheme == "har":  # an archive has no root of its own
        _check_plugin(scheme)
        return
    problem = _probe(libjvm, libhdfs, root, timeout_s)
    if problem:
        raise StorageError(f"{root} is unreachable: {problem}", errno.EHOSTUNREACH)
    _check_plugin(scheme)
    _look_from_here(root, timeout_s)


def why_unreachable(root, timeout_s=15.0):
    """Returns a sentence with what is wrong with a server now, "" if nothing is."""
    if scheme_of(root) == "har":
        return ""
    try:
        libjvm, libhdfs = hadoop_env.load_java(), hadoop_env.load_libhdfs()
    except StorageError as error:
        return str(error)
    problem = _probe(libjvm, libhdfs, root, timeout_s)
    return f"{root} is unreachable: {problem}" if problem else ""


def load_plugins():
    """Imports tensorflow-io; returns what is wrong, "" if nothing is."""
    import tensorflow as tf

    try:
        with warnings.catch_warnings():
            # On a TensorFlow that it does not fit it only warns.
            warnings.simplefilter("ignore")
            import tensorflow_io
    except ImportError as error:
        return (
            f"More come with the package tensorflow-io, which does not import "
            f"({error}): pip install tensorflow-io==0.37.1."
        )
    return (
        f"tensorflow-io {tensorflow_io.__version__} was imported on TensorFlow "
        f"{tf.__version__}; 0.37.1, its last release, fits 2.16 and 2.17."
    )


def _check_plugin(scheme):
    import tensorflow as tf

    told = load_plugins()
    if scheme not in tf.io.gfile.get_registered_schemes():
        raise StorageError(f"TensorFlow has no file system for {scheme}://. {told}")


def _probe(libjvm, libhdfs, root, timeout_s):
    """Looks at the root from another process; returns what is wrong, or None."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", _PROBE, libjvm, libhdfs, root],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return (
            f"no answer within {timeout_s:g} seconds. The server accepts connections "
            "but does not answer, or the network drops them."
        )
    if not done.returncode:
        return None
    reason = _reason(done.stderr)
    return reason if reason.endswith(("?", ".")) else f"{reason}."


def _reason(output):
    """Returns what the messages of Java and of the loader mean, in a few words."""
    for pattern, meaning in _REASONS:
        found = re.search(pattern, output)
        if found:
            return meaning.format(*found.groups())
    lines = re.findall(r"^\S*(?:Exception|Error)\b.*", output, re.MULTILINE)
    lines = lines or [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "Hadoop's client gave no reason"


def _look_from_here(root, timeout_s):
    """Looks at the root in this process, whose Java machine starts with that."""
    import tensorflow as tf

    with Worker() as worker:
        try:
            worker.run(lambda: tf.io.gfile.stat(root), timeout_s, f"reach {root}")
        except tf.errors.OpError as error:
            hint = (
                "Another process of this environment reached it: start this one anew. "
                "Was Hadoop used, or its environment changed, before?"
            )
            raise from_tensorflow(error, "reach", root, hint) from error
