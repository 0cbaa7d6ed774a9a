"""Trainings as processes of their own that can be watched and killed."""

import multiprocessing
import os
import signal
import sys
import tempfile
import time

# A process that takes longer has hung.
LIMIT_S = 600
_FORK = multiprocessing.get_context("fork")


class Training:
    """A running `python -m plsc_tf.train`, or another command; as a context, it ends.

    Its temporary files, which a killed process leaves behind, are in the folder `tmp`
    beside its own.

    Args:
        arguments: of the command.
        run_dir: the training's folder; its output is added to `<run_dir>.log`.
        module: another command, for which a new interpreter starts. A training runs in
            a fork of this process, which has imported TensorFlow but not used it. It
            saves the time of the import, and is the same command from there on.

    Attributes:
        pid: number of the process.
        status: its exit status, or minus the signal that ended it; None: it runs.
        killed: whether `kill` ended it.
    """

    def __init__(self, arguments, run_dir, module=""):
        self.status = None
        self.killed = False
        self._started_s = time.monotonic()
        folder = os.path.join(os.path.dirname(run_dir), "tmp")
        self._process = _FORK.Process(
            target=_run, args=(module, arguments, f"{run_dir}.log", folder)
        )
        self._process.start()
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def ended(self):
        """Whether it has ended; then `status` is known."""
        if self.status is None:
            self.status = self._process.exitcode
        if self.status is None and time.monotonic() > self._started_s + LIMIT_S:
            self.kill()
            self.killed = False
        return self.status is not None

    def kill(self):
        """Sends SIGKILL and waits for the end."""
        if self.status is None:
            self._process.kill()
            self._process.join()
            self.status = self._process.exitcode
            # It may have ended by itself a moment ago.
            self.killed = self.status == -signal.SIGKILL


def load():
    """Imports what a training run needs, so that forked ones need not."""
    import plsc_tf.jobs.train  # noqa: F401 - kept by Python, not by a name


def _run(module, arguments, log, folder):
    """Becomes a command, or trains; runs in the new process."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for target in (1, 2):
        os.dup2(file, target)
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    if module:
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    from plsc_tf import train
    from plsc_tf.options import cli

    cli.main(train.main, doc=train.__doc__, argv=arguments)
