"""Makes TensorFlow's server listen on a worker's own address only.

TensorFlow binds the server's port on all network interfaces, and has no option for it.
Linux lets a process hand over some of its system calls to another one, without root
(seccomp_unotify(2)). Here, a child process carries out `bind` for the server's port,
with the worker's address; all other calls of `bind` continue unchanged.
"""

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
_PIDFD_GETFD = 438
# linux/prctl.h, linux/seccomp.h
_NO_NEW_PRIVS, _SET_PTRACER = 38, 0x59616D61
_SET_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _ANSWER, _CONTINUE = 0xC0502100, 0xC0182101, 1
_REQUEST = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
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
        try:
            fcntl.ioctl(listener, _RECEIVE, request)
            number, pid, *_, sock, place, length, _, _, _ = _REQUEST.unpack(request)
            error, flags = 0, _CONTINUE
            try:
                copy, address = _bound_socket(pid, sock, place, length, host, port)
            except (OSError, struct.error):
                copy = None  # not allowed, or not an address
            if copy:
                flags = 0
                with copy:
                    try:
                        copy.bind(address)
                    except OSError as problem:
                        error = -abs(problem.errno or errno.EADDRNOTAVAIL)
            answer = _RESPONSE.pack(number, 0, error, flags)
            fcntl.ioctl(listener, _ANSWER, answer)
        except FileNotFoundError:
            continue  # the process has ended in the meantime


def _bound_socket(pid, sock, place, length, host, port):
    """Returns (a copy of a process's socket, the address to which to bind it).

    The socket is None if it is to be bound to another port.
    """
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(place)
        given = memory.read(min(length, 128))
    (family,) = struct.unpack_from("=H", given)
    asked = struct.unpack_from(">H", given, 2)
    if family not in (socket.AF_INET, socket.AF_INET6) or asked != (port,):
        return None, None
    # `pid` is that of a thread; its process has the first number.
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        process = next(int(row.split()[1]) for row in status if row[:5] == "Tgid:")
    pidfd = os.pidfd_open(process)
    try:
        copy = socket.socket(fileno=_call("syscall", _PIDFD_GETFD, pidfd, sock, 0))
    finally:
        os.close(pidfd)
    mapped = family == socket.AF_INET6 and ":" not in host
    return copy, (f"::ffff:{host}" if mapped else host, port)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[3])) as channel:
        received = socket.recv_fds(channel, 1, 1)[1]
    if received:  # otherwise, the filter could not be installed
        _serve(sys.argv[1], int(sys.argv[2]), received[0])
