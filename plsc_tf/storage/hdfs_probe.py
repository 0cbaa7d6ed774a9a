"""Asks a Hadoop file system for its root, in a process of its own, without TensorFlow.

    python hdfs_probe.py LIBJVM LIBHDFS hdfs://host:port/

It ends with status 0, or with another and Java's reason on standard error. The
process can be ended when the server never answers, and what Java prints can be read.
"""

import ctypes
import os
import sys


def main(libjvm, libhdfs, root):
    """Connects as tensorflow-io does, and looks at the root folder."""
    ctypes.CDLL(libjvm, mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(libhdfs)
    library.hdfsNewBuilder.restype = ctypes.c_void_p
    library.hdfsBuilderConnect.restype = ctypes.c_void_p
    library.hdfsBuilderConnect.argtypes = [ctypes.c_void_p]
    library.hdfsGetPathInfo.restype = ctypes.c_void_p
    library.hdfsGetPathInfo.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    for name in ("hdfsBuilderSetNameNode", "hdfsBuilderSetKerbTicketCachePath"):
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    builder = library.hdfsNewBuilder()
    scheme, _, host = root.rstrip("/").partition("://")
    server = (host or "default") if scheme == "hdfs" else root.rstrip("/")
    # The builder keeps pointers to both texts until it connects.
    texts = [server.encode(), os.environ.get("KERB_TICKET_CACHE_PATH", "").encode()]
    library.hdfsBuilderSetNameNode(builder, texts[0])
    if texts[1]:
        library.hdfsBuilderSetKerbTicketCachePath(builder, texts[1])
    connection = library.hdfsBuilderConnect(builder)
    if not connection:
        return 2
    return 0 if library.hdfsGetPathInfo(connection, b"/") else 3


if __name__ == "__main__":
    # At once: a Java machine may have threads that keep a process alive.
    os._exit(main(*sys.argv[1:]))
