"""Paths of any store: scheme, root, parent, name, and what is refused."""

import os
import posixpath
from typing import NamedTuple

# Served by Hadoop's client, in a Java machine inside this process.
HADOOP_SCHEMES = ("hdfs", "viewfs")


class FileStat(NamedTuple):
    """What a store says about a path; a folder has size 0 on remote stores."""

    is_dir: bool
    size: int
    modified_ns: int


def scheme_of(path):
    """Returns "hdfs" of `hdfs://host/a`, and "" of local paths and `file://`."""
    scheme, found, _ = os.fspath(path).partition("://")
    return scheme.lower() if found and scheme.lower() != "file" else ""


def is_local(path):
    """Whether the operating system's own calls reach `path`."""
    return not scheme_of(path)


def local_path(path):
    """Returns a local path without `file://`."""
    path = os.fspath(path)
    return path[len("file://") :] if path.lower().startswith("file://") else path


def root_of(path):
    """Returns `hdfs://host:port/` of `hdfs://host:port/a/b`."""
    return _split(path)[0]


def canonical(path):
    """Returns `path` as the stores take it.

    Raises:
        ValueError: a password in the address, or a ':' in a name on Hadoop's file
            systems, which cannot hold it.
    """
    if is_local(path):
        return local_path(path)
    root, rest = _split(path)
    if scheme_of(path) in HADOOP_SCHEMES:
        if ":" in rest:
            raise ValueError(
                "HDFS allows no ':' in names of files and folders. Received: "
                f"{root}{rest}. Use another name."
            )
        rest = posixpath.normpath(rest).strip("/") if rest else ""
    return root + ("" if rest == "." else rest.rstrip("/"))


def below_root(path):
    """Returns the canonical path of something that may be written, moved or removed.

    Raises:
        ValueError: `path` is the bare root of a remote store.
    """
    path = canonical(path)
    if not is_local(path) and path == root_of(path):
        raise ValueError(
            f"Expected a folder or file below the root of the store. Received: {path}. "
            f"Name a folder of your own: {path}user/me/run."
        )
    return path


def join(path, *names):
    """Returns the path of `names` below `path`, on any store."""
    if is_local(path):
        return os.path.join(os.fspath(path), *names)
    return "/".join([os.fspath(path).rstrip("/"), *names])


def parent(path):
    """Returns the folder that holds `path`; that of a root is the root."""
    if is_local(path):
        return os.path.dirname(os.path.abspath(local_path(path)))
    root, rest = _split(path)
    return root + posixpath.dirname(rest.rstrip("/"))


def name(path):
    """Returns the last part of `path`, "" of a remote root."""
    if is_local(path):
        return os.path.basename(os.path.abspath(local_path(path)))
    return posixpath.basename(_split(path)[1].rstrip("/"))


def _split(path):
    """Cuts a remote path behind the slash that follows its host."""
    scheme, _, rest = os.fspath(path).partition("://")
    host, _, rest = rest.partition("/")
    if ":" in host.rpartition("@")[0]:
        raise ValueError(
            f"Expected no password in an address of {scheme}://. Received: one before "
            "the '@'. Give the user in fs_ugi or HADOOP_USER_NAME."
        )
    return f"{scheme.lower()}://{host}/", rest
