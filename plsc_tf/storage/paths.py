"""Parses, joins and checks paths on any store."""

import os
import posixpath
import uuid
from typing import NamedTuple

from plsc_tf.requirements import require

# Schemes that Hadoop's client handles, in a Java virtual machine in this process.
HADOOP_SCHEMES = ("hdfs", "viewfs")
# Part of the name of what is being written; `catalog.sweep` removes such checkpoints.
WRITING = ".writing-"


class FileStat(NamedTuple):
    """The status of a path; on remote stores, the size of a folder is 0."""

    is_dir: bool
    size: int
    modified_ns: int


def scheme_of(path):
    """Returns "hdfs" for `hdfs://host/a`, and "" for local paths and `file://`."""
    scheme, found, _ = os.fspath(path).partition("://")
    return scheme.lower() if found and scheme.lower() != "file" else ""


def is_local(path):
    """Returns whether `path` is on the local file system."""
    return not scheme_of(path)


def local_path(path):
    """Returns a local path without `file://`."""
    path = os.fspath(path)
    return path[len("file://") :] if path.lower().startswith("file://") else path


def root_of(path):
    """Returns `hdfs://host:port/` for `hdfs://host:port/a/b`."""
    return _split(path)[0]


def canonical(path):
    """Returns `path` in the normalized form that the stores expect.

    Raises:
        ValueError: the URL contains a password, or a name on a Hadoop file system
            contains a ':', which is not allowed there.
    """
    if is_local(path):
        return local_path(path)
    root, rest = _split(path)
    if scheme_of(path) in HADOOP_SCHEMES:
        rule = "HDFS does not allow ':' in names of files and folders"
        require(":" not in rest, rule, "Use another name", path=root + rest)
        rest = posixpath.normpath(rest).strip("/") if rest else ""
    return root + ("" if rest == "." else rest.rstrip("/"))


def below_root(path):
    """Returns the canonical form of a path that will be written, moved or removed.

    Raises:
        ValueError: `path` is the root of a remote store, in a zip archive or on oss://.
    """
    path = canonical(path)
    rule = "Zip archives and oss:// are only read"
    require(scheme_of(path) not in ("zip", "oss"), rule, path=path)
    below = is_local(path) or path != root_of(path)
    rule = "Expected a folder or file below the root of the store"
    require(below, rule, f"Name a folder of your own: {path}user/me/run", path=path)
    return path


def leads_outside(name):
    """Returns whether a relative name could be that of a file outside its folder."""
    return name.startswith("/") or ".." in name.split("/")


def join(path, *names):
    """Returns the path of `names` below `path`, on any store."""
    if is_local(path):
        return os.path.join(os.fspath(path), *names)
    return "/".join([os.fspath(path).rstrip("/"), *names])


def parent(path):
    """Returns the folder that contains `path`; for a root, the root itself."""
    if is_local(path):
        return os.path.dirname(os.path.abspath(local_path(path)))
    root, rest = _split(path)
    return root + posixpath.dirname(rest.rstrip("/"))


def name(path):
    """Returns the last component of `path`, "" for a remote root."""
    if is_local(path):
        return os.path.basename(os.path.abspath(local_path(path)))
    return posixpath.basename(_split(path)[1].rstrip("/"))


def _split(path):
    """Splits a remote path after the slash that follows the host."""
    scheme, _, rest = os.fspath(path).partition("://")
    host, _, rest = rest.partition("/")
    rule = f"A {scheme}:// address must not contain a password before the '@'"
    advice = "Set the user with fs_ugi or HADOOP_USER_NAME"
    require(":" not in host.rpartition("@")[0], rule, advice)
    return f"{scheme.lower()}://{host}/", rest


def temporary_name(path: str) -> str:
    """Returns a name for a file until it is complete, which no other process uses."""
    return f"{path}{WRITING}{uuid.uuid4().hex[:16]}"
