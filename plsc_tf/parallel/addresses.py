"""Addresses of workers: their texts, and which of them are this machine's."""

import errno
import re
import socket

_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%\w+)?)\](?::(\d+))?")
_PLAIN = re.compile(r"([A-Za-z0-9._-]+)(?::(\d+))?")


def split(text):
    """Returns (host, port) of `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.

    The port is None where there is none; hosts come in lower case, IPv6 addresses
    without brackets.

    Raises:
        ValueError: the text is none of these.
    """
    match = _BRACKETED.fullmatch(text) or _PLAIN.fullmatch(text)
    if not match:
        advice = ""
        if text.count(":") > 1 and "[" not in text:
            advice = " An IPv6 address needs brackets: [::1] or [::1]:6170."
        raise ValueError(f"expected host or host:port, received {text!r}.{advice}")
    host, port = match.group(1).lower(), match.group(2)
    if port is not None and not 1 <= int(port) <= 65535:
        raise ValueError(f"a port is 1 to 65535, received {text!r}.")
    return host, None if port is None else int(port)


def join(host, port):
    """Returns `host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check(addresses, origin):
    """Returns the addresses in the form of `join`.

    Args:
        addresses: texts, each with a port.
        origin: where they were read, for errors.

    Raises:
        ValueError: one is malformed, has no port, or is there twice.
    """
    checked = []
    for text in addresses:
        try:
            host, port = split(text)
        except ValueError as error:
            raise ValueError(f"{origin}: {error}") from None
        if port is None:
            raise ValueError(f"{origin}: {text!r} has no port; write host:port.")
        checked.append(join(host, port))
    for i, address in enumerate(checked):
        if address in checked[:i]:
            raise ValueError(
                f"{origin}: workers {checked.index(address)} and {i} have the same "
                f"address, {address}. Each worker needs a port of its own; several on "
                "each machine are num_workers."
            )
    return tuple(checked)


def is_local(host):
    """Whether `host` is an address of this machine, by trying to listen on it.

    Raises:
        OSError: the name is not known here.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return any(_can_bind(family, address) for family, *_, address in found)


def free_ports(host, count):
    """Returns ports on which nobody listens now, as the kernel gives them."""
    sockets = []
    try:
        for _ in range(count):
            opened = socket.socket()
            sockets.append(opened)
            opened.bind((host, 0))
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()


def require_free(address):
    """Makes sure that a worker can listen on its address.

    Raises:
        OSError: somebody else does, or the address is not this machine's.
    """
    host, port = split(address)
    family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As TensorFlow's server does: a port whose last connections only wait for
        # their end is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except OSError as error:
            reason = {
                errno.EADDRINUSE: "the port is in use",
                errno.EADDRNOTAVAIL: "the address is not this machine's",
            }.get(error.errno, error.strerror)
            raise OSError(f"a worker cannot listen on {address}: {reason}") from None


def _can_bind(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True
