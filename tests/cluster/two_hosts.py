"""Two hosts with addresses of their own: network namespaces that a cable joins.

A namespace lives as long as a process in it: here one that ends with its maker.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time

CABLE = "cable"


class NotPermittedError(Exception):
    """There are no such hosts here, and why."""


class Host:
    """A host with a network of its own.

    Args:
        address: its IPv4 address, in a network of 256.

    Raises:
        NotPermittedError: this process may not make one.
    """

    def __init__(self, address):
        self.address = address
        # It reads until its standard input ends, which is when this process does.
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self._holder = subprocess.Popen(["unshare", "--net", "cat"], **pipes)
        self.network = f"/proc/{self._holder.pid}/ns/net"
        own = os.readlink("/proc/self/ns/net")
        while self._holder.poll() is None:
            # A process that has ended has no namespace.
            with contextlib.suppress(OSError):
                if os.readlink(self.network) != own:
                    return
            time.sleep(0.01)
        why = self._holder.stderr.read().strip()
        self.close()
        raise NotPermittedError(why)

    def command(self, *words):
        """The command line that runs one on this host."""
        return ["nsenter", f"--net={self.network}", *words]

    def ip(self, words):
        """Sets up the network with the command `ip`.

        Raises:
            NotPermittedError: it did not work.
        """
        command = self.command("ip", *words.split())
        if (done := subprocess.run(command, capture_output=True, text=True)).returncode:
            raise NotPermittedError(f"ip {words}: {done.stderr.strip()}")

    def join(self, other):
        """Lays a cable to another host, and gives both their addresses."""
        pid = other._holder.pid
        self.ip(f"link add name {CABLE} type veth peer name {CABLE} netns {pid}")
        for host in (self, other):
            host.ip(f"address add {host.address}/24 dev {CABLE}")
            host.ip("link set lo up")
            host.ip(f"link set {CABLE} up")

    def pull(self):
        """Pulls the cable out of this host; the other one sees no more than that."""
        self.ip(f"link set {CABLE} down")

    def plug(self):
        """Plugs it in again."""
        self.ip(f"link set {CABLE} up")

    def close(self):
        """Ends it; its cable is gone with it."""
        self._holder.stdin.close()
        self._holder.kill()
        self._holder.wait()
        self._holder.stderr.close()


@contextlib.contextmanager
def two_hosts():
    """Two joined `Host`s, 10.77.0.1 and 10.77.0.2.

    Raises:
        NotPermittedError: they cannot be made on this machine.
    """
    if not sys.platform.startswith("linux"):
        raise NotPermittedError("network namespaces are Linux's")
    if missing := [t for t in ("ip", "unshare", "nsenter") if shutil.which(t) is None]:
        raise NotPermittedError(f"there is no command {', '.join(missing)}")
    with contextlib.ExitStack() as made:
        first = Host("10.77.0.1")
        made.callback(first.close)
        second = Host("10.77.0.2")
        made.callback(second.close)
        first.join(second)
        yield first, second
