"""Trainings as processes of their own that can be watched and killed."""

import contextlib
import os
import signal
import sys
import tempfile
import time
import traceback

# A process that takes longer has hung.
LIMIT_S = 600


class Training:
    """A running `python -m plsc_tf.train`, or another command.

    Its temporary files, which a killed process leaves behind, are in the folder `tmp`
    beside its own.

    Args:
        arguments: of the command.
        run_dir: the training's folder; its output is added to `<run_dir>.log`.
        fork: whether to fork this process, which has imported TensorFlow but not
            used it, instead of starting a new interpreter. It saves the time of the
            import, and is the same command from there on.
        module: the command; only `plsc_tf.train` can be forked.
    """

    def __init__(self, arguments, run_dir, *, fork=True, module="plsc_tf.train"):
        log = f"{run_dir}.log"
        folder = os.path.join(os.path.dirname(run_dir), "tmp")
        self.started = time.perf_counter()
        self.seconds = None
        self.status = None
        self.killed = False
        if fork:
            self.pid = _fork(arguments, log, folder)
        else:
            self.pid = _spawn([module, *arguments], log, folder)

    @property
    def age_s(self):
        """Seconds since it was started."""
        return time.perf_counter() - self.started

    def ended(self):
        """Whether it has ended; then `status` is its exit status, or -signal."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.seconds = self.age_s
                self.status = os.waitstatus_to_exitcode(status)
            elif self.age_s > LIMIT_S:
                self.kill()
                self.killed = False
        return self.status is not None

    def kill(self):
        """Sends SIGKILL and waits for the end."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.seconds = self.age_s
            self.status = os.waitstatus_to_exitcode(status)
            # It may have ended by itself a moment ago.
            self.killed = self.status == -signal.SIGKILL


def load():
    """Imports what a training run needs, so that forked ones need not."""
    import plsc_tf.jobs.train  # noqa: F401 - kept by Python, not by a name


def _spawn(command, log, folder):
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", *command],
        {**os.environ, "TMPDIR": folder},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )


def _fork(arguments, log, folder):
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    # Whatever happens, the copy of the caller's stack must not run on.
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _redirect(log)
        os.environ["TMPDIR"], tempfile.tempdir = folder, None
        status = _train(arguments)
    except BaseException:  # noqa: BLE001 - written to the log; the process ends
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _redirect(log):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


def _train(arguments):
    """What `python -m plsc_tf.train` does; returns its exit status."""
    from plsc_tf import train
    from plsc_tf.options import cli

    try:
        cli.main(train.main, doc=train.__doc__, argv=arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
