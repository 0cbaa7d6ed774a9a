"""Claims on a folder: what they say, and whether their processes are alive."""

import functools
import json
import os
import socket
import time

from plsc_tf.storage import files
from plsc_tf.storage.paths import canonical, local_path, scheme_of

# Claims are of one size, so that renewing one on a full disk needs no new block.
_BYTES = 1024


def write(path, claim, retry, renewed):
    """Writes a claim.

    Args:
        path: of its file.
        claim: dict.
        retry: the `files.Retry`.
        renewed: whether there is one already.
    """
    raw = json.dumps(claim).encode().ljust(_BYTES)
    if not files.is_local(path):
        if renewed and scheme_of(path) == "ram":
            files.remove(path)  # TensorFlow would append to it
        files.write(path, raw, retry=retry)
        return
    # A reader sees the older claim or this one. It need not outlive a power cut, which
    # no process does.
    path = local_path(path)
    if renewed:
        with open(path, "r+b", buffering=0) as file:
            file.write(raw)
        return
    with open(f"{path}.new", "wb", buffering=0) as file:
        file.write(raw)
    os.rename(f"{path}.new", path)


def read(raw):
    """The dict of a claim; None where it is being written."""
    try:
        claim = json.loads(raw)
        return claim if claim["state"] and claim["host"] and claim["pid"] else None
    except (ValueError, LookupError, TypeError):
        return None


def describe(owner):
    """Returns who that is, for messages."""
    if not owner:
        return "another process"
    if owner["pid"] == os.getpid() and owner["host"] == socket.gethostname():
        return f"this process itself (process {os.getpid()} on {owner['host']})"
    return f"process {owner['pid']} on {owner['host']}"


def place(folder):
    """The folder as it is called on this machine, without symbolic links."""
    if files.is_local(folder):
        return os.path.realpath(local_path(folder))
    return canonical(folder)


@functools.cache
def machine():
    """A name of the running kernel, the same in all of its containers."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def process(of_machine):
    """What identifies this process: machine, namespaces, when it began."""
    try:
        # Containers count processes, and may count ticks, in ways of their own.
        space = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
    except OSError:
        space = []
    return {"machine": of_machine, "space": space, "begun": _begun(os.getpid())[0]}


class Watched:
    """What is known of a claim of another process.

    Args:
        raw: its content.
        own: the claim of this process.

    Attributes:
        owner: what it says; None while that cannot be read.
        certain: whether the kernel knows if its process is alive.
        alive: whether it is, or has given a sign of life since.
    """

    def __init__(self, raw, own):
        self.owner = None
        self.certain = self.alive = False
        self._own, self._raw, self._dead = own, raw, False
        self._since = time.monotonic()

    def look(self, raw):
        """Looks at the claim again."""
        if raw != self._raw:
            self._raw, self._since = raw, time.monotonic()
            self.alive = True
        self.owner = read(raw) or self.owner
        if self.owner is None:
            self.alive = False
            return
        if any(
            self.owner.get(name) != self._own[name] for name in ("machine", "space")
        ):
            return
        running = _is_running(self.owner["pid"], self.owner.get("begun"))
        # A claim that was copied with its folder is no claim on the copy.
        if running and self.owner.get("folder") != self._own["folder"]:
            return
        if running is not None:
            self.certain, self.alive, self._dead = True, running, not running

    def dead(self, lease_s):
        """Whether its process has ended, or has given no sign of life for so long."""
        waited = time.monotonic() - self._since
        return self._dead or (not self.certain and waited > lease_s)


def _is_running(pid, begun):
    """Whether a process of this machine runs; None where the system does not say."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    now, state = _begun(pid)
    if not now or not begun:
        return None
    return now == begun and state not in ("Z", "X")


def _begun(pid):
    """(clock tick at which a process began, its state); (0, "") where unknown."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(fields[19]), fields[0]
