"""A worker as a child process that ends with the launcher, whatever ends that."""

import ctypes
import os
import signal
import subprocess
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


class Worker:
    """A running worker, in a process group of its own.

    A terminal sends Ctrl-C to its whole foreground group; so the workers do not get it
    from there, but once, from the launcher.

    Attributes:
        index: its index in the cluster.
        status: its exit status, or minus the signal that ended it; None: it runs.
        signaled: whether it was sent a signal.

    Args:
        index: its index in the cluster.
        command: its command line.
        environ: its environment.
        log: the `Log` that takes its output.
    """

    def __init__(self, index, command, environ, log):
        self.index = index
        self.status = None
        self.signaled = False
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_die_with_parent(),
        )

    def ended(self):
        """Whether it has ended; then `status` says how, and none of its own is left."""
        if self.status is None:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self._process.pid, options) is None:
                return False
            # Until it is waited for, nobody else can get its group's number.
            self._signal_group(signal.SIGKILL)
            self.status = self._process.wait()
        return True

    def stopped(self):
        """Whether it is stopped, by Ctrl-Z or SIGSTOP."""
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def tell(self, signum):
        """Sends it a signal, and wakes it if it is stopped."""
        if not self.ended():
            self.signaled = True
            self._process.send_signal(signum)
            self._signal_group(signal.SIGCONT)

    def kill(self):
        """Ends it at once, with all its children, and waits for that."""
        if not self.ended():
            self.signaled = True
            self._signal_group(signal.SIGKILL)
            self.status = self._process.wait()

    def _signal_group(self, signum):
        try:
            os.killpg(self._process.pid, signum)
        except ProcessLookupError:
            return
        except PermissionError:
            # macOS, for a group of which only ended processes are left.
            return


def _die_with_parent():
    """Returns what a child calls before it runs its command; None where none can."""
    if not sys.platform.startswith("linux"):
        return None
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def tie():
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # The launcher died before the line above.

    return tie
