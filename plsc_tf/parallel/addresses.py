"""Parses and checks the network addresses of workers."""

import contextlib
import re
import socket
from collections.abc import Iterable

from plsc_tf.requirements import require

_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%\w+)?)\](?::(\d+))?")
_PLAIN = re.compile(r"([A-Za-z0-9._-]+)(?::(\d+))?")


def split(text: str, origin: str = "an address") -> tuple[str, int | None]:
    """Splits `host`, `host:port`, `[IPv6]` or `[IPv6]:port` into (host, port).

    The host is in lower case and has no brackets. The port is None if the address has
    none.

    Args:
        text: the address.
        origin: the address's source, for the error message.

    Raises:
        ValueError: the text has none of these forms, or the port is out of range.
    """
    match = _BRACKETED.fullmatch(text) or _PLAIN.fullmatch(text)
    if not match:
        ipv6 = text.count(":") > 1 and "[" not in text
        advice = " An IPv6 address needs brackets: [::1]:6170." if ipv6 else ""
        raise ValueError(
            f"{origin}: expected host or host:port, received {text!r}.{advice}"
        )
    host, port = match.group(1).lower(), match.group(2)
    if port is not None and not 1 <= int(port) <= 65535:
        raise ValueError(f"{origin}: a port must be 1 to 65535, received {text!r}.")
    return host, None if port is None else int(port)


def join(host: str, port: int) -> str:
    """Returns `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check(addresses: Iterable[str], origin: str) -> tuple[str, ...]:
    """Checks addresses and returns them in the format of `join`.

    Args:
        addresses: addresses, each with a port.
        origin: the addresses' source, for the error message.

    Raises:
        ValueError: an address is malformed, has no port, or appears twice.
    """
    checked: list[str] = []
    for text in addresses:
        host, port = split(text, origin)
        if port is None:
            raise ValueError(f"{origin}: {text!r} has no port; write host:port.")
        checked.append(join(host, port))
    for i, address in enumerate(checked):
        first = checked.index(address)
        rule = f"{origin}: workers {first} and {i} have the same address, {address}"
        advice = "Use different ports; for several on each machine, set num_workers"
        require(first == i, rule, advice)
    return tuple(checked)


def free_addresses(count: int) -> tuple[str, ...]:
    """Returns `count` addresses 127.0.0.1:port whose ports are free at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return tuple(join(*opened.getsockname()) for opened in sockets)
