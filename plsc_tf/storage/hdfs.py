"""Makes `hdfs://` work in this process, or reports which component is missing.

If a component is missing, Hadoop's client says that a file "does not exist", reports an
"unknown error 255", or hangs. Therefore, Java, libhdfs and CLASSPATH are checked first,
and a separate process, which can be killed, tries the server. Clients read the
environment variables at their first call, so they can still be set here.
"""

import ctypes
import errno
import glob
import os
import re
import shutil
import subprocess
import sys

from absl import logging

from plsc_tf.storage.errors import StorageError
from plsc_tf.storage.paths import root_of

# Seconds that a server has to answer the first request.
LIMIT_S = 60.0
_PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hdfs_probe.py")
_CLASS_PATH = "set it to the output of `hadoop classpath --glob`"
# Patterns of Java's exceptions, with advice for each.
_REASONS = {
    r"getSubject is not supported": (
        "Hadoop's client does not run on Java 24 and later: set JAVA_HOME to a Java 17"
    ),
    r"(?:NoClassDefFoundError|ClassNotFoundException|No FileSystem for scheme)(.*)": (
        f"CLASSPATH lacks Hadoop's jars{{}}: {_CLASS_PATH}"
    ),
    r"UnknownHostException: ([\w.-]+)": (
        "the host {} is unknown. Is it spelled right, and for a nameservice, is the "
        "folder with hdfs-site.xml in CLASSPATH?"
    ),
    r"Connection refused": (
        "the connection was refused. Is the NameNode running, and is this its RPC port "
        "(fs.defaultFS in core-site.xml)?"
    ),
    r"Protocol message|RpcException|InvalidProtocolBuffer|EOFException|RPC response": (
        "the server is not a NameNode. Is this the RPC port "
        "(fs.defaultFS in core-site.xml), not that of the web page?"
    ),
    "cannot access class sun.security.krb5": (
        "Hadoop before 3.3 cannot use Kerberos on Java 17 as it is: set LIBHDFS_OPTS="
        "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
    ),
    "Can't get Kerberos realm": "krb5.conf is missing, or has no default_realm",
    "invalid null input: name": "this process's user ID has no name in /etc/passwd",
    "GSSExc|SaslExc|Client cannot auth|KerberosAuth|failure to login|SIMPLE auth": (
        "the cluster requires Kerberos: call kinit, and set KERB_TICKET_CACHE_PATH"
    ),
}


def prepare_hdfs(uri, timeout_s=LIMIT_S):
    """Sets up Hadoop's client for this process and checks that it can connect.

    Loads Java and libhdfs, completes CLASSPATH and adds -Xrs to LIBHDFS_OPTS. To check
    the connection, it reads the root folder's status in a separate process.

    Args:
        uri: any path on the file system, `hdfs://host:port/...`.
        timeout_s: time limit in seconds for the request.

    Raises:
        StorageError: a component is missing or the server cannot be reached; the
            message says which component or why.
    """
    libraries = _load_libraries()
    _set_class_path()
    # Without -Xrs, Ctrl-C kills the process, and a SIGTERM handler never runs.
    if "-Xrs" not in (options := os.environ.get("LIBHDFS_OPTS", "").split()):
        os.environ["LIBHDFS_OPTS"] = " ".join([*options, "-Xrs"])
    # tensorflow-io does not pass the ticket on.
    if ticket := os.environ.get("KERB_TICKET_CACHE_PATH"):
        os.environ.setdefault("KRB5CCNAME", ticket)
    if problem := _probe(libraries, root_of(uri), timeout_s):
        raise StorageError(problem, errno.EHOSTUNREACH)


def why_unreachable(root, timeout_s=15.0):
    """Returns a sentence that says why a server can't be reached, "" if it can."""
    try:
        return _probe(_load_libraries(), root, timeout_s)
    except StorageError as error:
        return str(error)


def _load_libraries():
    """Loads libjvm.so, which libhdfs needs, and libhdfs.so; returns their paths."""
    program = os.path.realpath(shutil.which("java") or "/")
    java = os.environ.get("JAVA_HOME") or os.path.dirname(os.path.dirname(program))
    hadoop = os.environ.get("HADOOP_HDFS_HOME") or os.environ.get("HADOOP_HOME", "")
    if libhdfs := _existing(hadoop, "lib/native/libhdfs.so"):
        os.environ["HADOOP_HDFS_HOME"] = hadoop
        os.environ["ARROW_LIBHDFS_DIR"] = os.path.dirname(libhdfs)
    libjvm = _existing(java, "lib/server/libjvm.so", "jre/lib/*/server/libjvm.so")
    # For a bare file name, the loader searches LD_LIBRARY_PATH.
    libraries = libjvm or "libjvm.so", libhdfs or "libhdfs.so"
    java_home = "JAVA_HOME to the folder of a Java 17"
    hadoop_home = "HADOOP_HDFS_HOME to Hadoop's folder"
    needs = ("Java's libjvm.so", java_home), ("libhdfs.so of Hadoop", hadoop_home)
    for path, (piece, advice) in zip(libraries, needs, strict=True):
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            name = advice.split()[0]
            raise StorageError(
                f"HDFS needs {piece}, which cannot be loaded: {error}. Received: "
                f"{name}={os.environ.get(name, '')!r}. Set {advice}."
            ) from error
    return libraries


def _existing(home, *patterns):
    """Returns the first file in `home` that matches a pattern, or None."""
    below = [os.path.join(glob.escape(home), pattern) for pattern in patterns]
    return next((path for p in below if home for path in glob.glob(p)), None)


def _set_class_path():
    """Sets CLASSPATH from the `hadoop` command if unset, and expands wildcards.

    Java itself expands wildcards only on its command line, not when it is loaded as a
    library.
    """
    text = os.environ.get("CLASSPATH", "").strip() or _ask_hadoop()
    entries = []
    for entry in filter(None, text.split(os.pathsep)):
        jars = glob.escape(entry[:-1]) + "*.[jJ][aA][rR]"
        wild = os.path.basename(entry) == "*"
        entries += sorted(glob.glob(jars)) if wild else [entry]
    if not any(map(os.path.exists, entries)):
        raise StorageError(
            "HDFS needs Hadoop's jars, and no file or folder in CLASSPATH exists. "
            f"Received: CLASSPATH={text[:200]!r}. Before Python starts, {_CLASS_PATH}; "
            "the folder with core-site.xml and hdfs-site.xml must come first."
        )
    os.environ["CLASSPATH"] = os.pathsep.join(entries)


def _ask_hadoop():
    """Returns the class path that an installed `hadoop` prints, or ""."""
    home = os.environ.get("HADOOP_HOME") or os.environ.get("HADOOP_HDFS_HOME", "")
    program = shutil.which("hadoop") or shutil.which(os.path.join(home, "bin/hadoop"))
    if not program:
        return ""
    try:
        command = [program, "classpath", "--glob"]
        text = subprocess.check_output(command, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    logging.info("CLASSPATH was not set; it is now that of %s.", program)
    return text.strip()


def _probe(libraries, root, timeout_s):
    """Reads the root folder's status in another process; returns the problem, or ""."""
    try:
        command = [sys.executable, "-I", _PROBE, *libraries, root]
        given = {"stdin": subprocess.DEVNULL, "timeout": timeout_s, "text": True}
        done = subprocess.run(command, capture_output=True, errors="replace", **given)
    except subprocess.TimeoutExpired:
        return (
            f"{root} is unreachable: no answer within {timeout_s:g} seconds. The "
            "server accepts connections but does not answer, or the network drops them."
        )
    if not done.returncode:
        return ""
    reason = _reason(done.stderr)
    end = "" if reason.endswith(("?", ".")) else "."
    return f"{root} is unreachable: {reason}{end}"


def _reason(output):
    """Explains the error messages of Java or the loader in a few words."""
    for pattern, meaning in _REASONS.items():
        if match := re.search(pattern, output):
            return meaning.format(*match.groups())
    lines = re.findall(r"^\S*(?:Exception|Error)\b.*", output, re.MULTILINE)
    lines = lines or [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "Hadoop's client gave no reason"
