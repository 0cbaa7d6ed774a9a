"""The workers that a launcher has started, watched and signalled from outside."""

import contextlib
import json
import os
import select
import signal

from benchmarks.kill_moments import read


class Member:
    """A worker; its number cannot be mistaken for that of a later process.

    Args:
        pid: its process.

    Attributes:
        index: its index in the cluster.
        status: its exit status, or minus the signal that ended it; None while it runs,
            or where the launcher was quicker to ask.
        ended: whether `look` has seen that it has ended.

    Raises:
        ProcessLookupError: it has ended.
    """

    def __init__(self, pid):
        self.status = None
        self.ended = False
        self._pid = pid
        self._fd = os.pidfd_open(pid)
        environ = dict(
            entry.split(b"=", 1)
            for entry in read(f"/proc/{pid}/environ").split(b"\0")
            if b"=" in entry
        )
        if b"TF_CONFIG" not in environ:
            os.close(self._fd)
            raise ProcessLookupError(f"Process {pid} is not a worker, or has ended.")
        self.index = json.loads(environ[b"TF_CONFIG"])["task"]["index"]

    def look(self):
        """Whether it has ended."""
        if not self.ended and select.select([self._fd], [], [], 0)[0]:
            self.ended = True
            self.status = _status(self._pid)
            os.close(self._fd)
        return self.ended

    def send(self, signum):
        """Sends it a signal."""
        signal.pidfd_send_signal(self._fd, signum)


def members(launcher):
    """The workers of a launcher that have not ended, in order of index.

    Args:
        launcher: its process.
    """
    found = []
    for pid in read(f"/proc/{launcher}/task/{launcher}/children").split():
        with contextlib.suppress(ProcessLookupError):
            found.append(Member(int(pid)))
    return sorted(found, key=lambda member: member.index)


def ended(workers):
    """Whether all of these have ended."""
    return all([worker.look() for worker in workers])


def _status(pid):
    """How a process ended that its parent has not asked about; None: it has."""
    try:
        state, *_, code = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (ProcessLookupError, ValueError):
        return None
    return os.waitstatus_to_exitcode(int(code)) if state == b"Z" else None
