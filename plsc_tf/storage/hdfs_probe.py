"""Checks in a separate process, without TensorFlow, that HDFS can be reached.

    python hdfs_probe.py LIBJVM LIBHDFS hdfs://host:port/

The exit status is 0 on success; otherwise, standard error contains Java's error
message. The caller can kill the process if the server never answers, and can read
Java's output.
"""

import ctypes
import os
import sys


def main(libjvm, libhdfs, root):
    """Connects like tensorflow-io and reads the root folder's status."""
    ctypes.CDLL(libjvm, mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(libhdfs)
    for name in ("hdfsNewBuilder", "hdfsBuilderConnect", "hdfsGetPathInfo"):
        getattr(library, name).restype = ctypes.c_void_p
    # Without the type, ctypes would pass a pointer as an int of 32 bits.
    builder = ctypes.c_void_p(library.hdfsNewBuilder())
    scheme, _, host = root.rstrip("/").partition("://")
    server = (host or "default") if scheme == "hdfs" else root.rstrip("/")
    # The builder keeps pointers to both strings until it connects.
    texts = [server.encode(), os.environ.get("KERB_TICKET_CACHE_PATH", "").encode()]
    library.hdfsBuilderSetNameNode(builder, texts[0])
    if texts[1]:
        library.hdfsBuilderSetKerbTicketCachePath(builder, texts[1])
    connection = ctypes.c_void_p(library.hdfsBuilderConnect(builder))
    return 0 if connection and library.hdfsGetPathInfo(connection, b"/") else 2


if __name__ == "__main__":
    # A normal exit could hang, because Java threads may keep the process alive.
    os._exit(main(*sys.argv[1:]))
