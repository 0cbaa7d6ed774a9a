"""Makes TensorFlow's server listen on a worker's own address only.

TensorFlow binds the server's port on all network interfaces, and has no option for it.
Linux lets a process hand over some of its system calls to another one, without root
(seccomp_unotify(2)). Here, a call of `bind` waits while a child process looks at its
address: if that has the server's port, the child writes the worker's host into it.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import sys

# (AUDIT_ARCH, number of bind, number of seccomp) of each architecture.
_SYSTEMS = {"x86_64": (0xC000003E, 49, 317), "aarch64": (0xC00000B7, 200, 277)}
# linux/prctl.h, linux/seccomp.h
_NO_NEW_PRIVS, _SET_PTRACER = 38, 0x59616D61
_SET_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _ANSWER, _CONTINUE = 0xC0502100, 0xC0182101, 1
_REQUEST = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
# The beginning of struct sockaddr, (family, port), and the place of the host in it.
_ADDRESS = struct.Struct("=HH")
_HOST_PLACES = {socket.AF_INET: 4, socket.AF_INET6: 8}
_LIBC = ctypes.CDLL(None, use_errno=True)


def install(host: str, port: int) -> None:
    """Restricts a port that this thread, or one that it starts, will listen on.

    The restriction lasts until this process ends, and concerns programs that it starts.
    They cannot gain privileges, for example by sudo.

    Args:
        host: the IP address on which to listen.
        port: the port.

    Raises:
        OSError: the system does not support it, or forbids it.
    """
    if platform.machine() not in _SYSTEMS or sys.platform != "linux":
        raise OSError(f"it is not supported on {sys.platform}, {platform.machine()}")
    own, theirs = socket.socketpair()
    with own, theirs:
        given = theirs.fileno()
        # -P: a module of the current folder must not replace one of Python.
        words = [sys.executable, "-P", __file__, host, str(port), str(given)]
        # In a session of its own, Ctrl-C does not end it.
        child = subprocess.Popen(words, pass_fds=[given], start_new_session=True)
        _call("prctl", _SET_PTRACER, child.pid, 0, 0, 0, allowed=True)
        _call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
        listener = _listener()
        try:
            socket.send_fds(own, [b"x"], [listener])
        finally:
            os.close(listener)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
        if probe.getsockname()[0] != host:
            raise OSError("this system does not let a process inspect another one")


def _listener():
    """Installs the filter for `bind`; returns the file descriptor of the requests."""
    arch, bind, seccomp = _SYSTEMS[platform.machine()]
    load, equal, end = 0x20, 0x15, 0x06
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (load, 0, 0, 4),  # the architecture
            (equal, 1, 0, arch),
            (end, 0, 0, _ALLOW),
            (load, 0, 0, 0),  # the number of the call
            (equal, 0, 1, bind),
            (end, 0, 0, _NOTIFY),
            (end, 0, 0, _ALLOW),
        )
    )
    code = ctypes.create_string_buffer(program)
    head = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    return _call("syscall", seccomp, _SET_FILTER, _NEW_LISTENER, head)


def _call(name, *arguments, allowed=False):
    """Calls a function of the C library; raises its error unless it is allowed."""
    longs = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = getattr(_LIBC, name)(*longs)
    if result < 0 and not allowed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _serve(host, port, listener):
    """Answers the requests of all processes with the filter, until they have ended."""
    requests = select.poll()
    requests.register(listener, select.POLLIN)
    while not requests.poll()[0][1] & select.POLLHUP:
        request = bytearray(_REQUEST.size)
        with contextlib.suppress(FileNotFoundError):  # the process has ended meanwhile
            fcntl.ioctl(listener, _RECEIVE, request)
            number, pid, *_, place, _, _, _, _ = _REQUEST.unpack(request)
            error = _set_host(pid, place, host, port)
            flags = 0 if error else _CONTINUE
            fcntl.ioctl(listener, _ANSWER, _RESPONSE.pack(number, 0, -error, flags))


def _set_host(pid, place, host, port):
    """Writes the host into the address at a place in a process's memory.

    Leaves addresses with other ports as they are. Returns the number of the error with
    which `bind` must fail, or 0.
    """
    with contextlib.suppress(OSError, struct.error):  # not allowed, or not an address
        with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
            memory.seek(place)
            family, asked = _ADDRESS.unpack(memory.read(_ADDRESS.size))
            if family not in _HOST_PLACES or asked != socket.htons(port):
                return 0
            if family == socket.AF_INET6 and ":" not in host:
                host = f"::ffff:{host}"
            if family == socket.AF_INET and ":" in host:
                return errno.EADDRNOTAVAIL
            memory.seek(place + _HOST_PLACES[family])
            memory.write(socket.inet_pton(family, host))
    return 0


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[3])) as channel:
        received = socket.recv_fds(channel, 1, 1)[1]
    if received:  # otherwise, the filter could not be installed
        _serve(sys.argv[1], int(sys.argv[2]), received[0])
