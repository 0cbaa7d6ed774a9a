"""Sends the figures and files of a run to MLflow and Weights & Biases."""

import contextlib
import importlib.util
import json
import pathlib
import sys
import tempfile
import time
from subprocess import PIPE, Popen, TimeoutExpired

from plsc_tf.reporting import recorder, tracker_process
from plsc_tf.requirements import require, require_one_of
from plsc_tf.storage import deadline, files

# Seconds to wait, when a run ends, for what is not yet sent.
LIMIT_S = 60.0


class Tracker(recorder.Sink):
    """Sends figures and files to an experiment tracker from another process.

    The library runs in a process of its own, and a thread waits for its answers, so
    that a server that does not answer cannot delay the training, and its end by no more
    than `LIMIT_S`. The library's own environment variables and login determine server,
    project and key. The run's id is kept in `<folder>/<name>_run_id`, with which a
    resume continues the run.

    Args:
        name: "mlflow" or "wandb".
        folder: the run's folder.
        params: {name: value} of the run's parameters.

    Raises:
        ModuleNotFoundError: the tracker's library is not installed.
        ValueError: the name is unknown.
    """

    def __init__(self, name: str, folder: str, params: dict | None = None):
        require_one_of(tracker_process.TRACKERS, tracker=name)
        library = importlib.util.find_spec(name)
        # Without an origin, it is a folder of this name, such as W&B's logs.
        rule = f"The tracker {name} needs its library: pip install 'plsc_tf[{name}]'"
        require(library and library.origin, rule, raises=ModuleNotFoundError)
        self._params = {name: str(value) for name, value in (params or {}).items()}
        self.output = f"the run in {name}"
        self._name, self._folder = name, folder.rstrip("/")
        self._worker, self._process, self._calls = None, None, []

    def begin(self, step):
        """Starts a run, or after step 0 continues the one of the folder."""
        self.close()
        self._worker, self._finished = deadline.Worker(), False
        self._queue(lambda: self._start(step))

    def scalars(self, step, values):
        """See `Sink`."""
        numbers = {name: float(value) for name, value in values.items()}
        self._queue(lambda: self._ask("log", step, numbers))

    def finish(self, paths):
        """See `Sink`."""
        self._finished = True
        if paths:
            self._queue(lambda: self._upload(paths))

    def close(self):
        """Waits for what is not yet sent; without `finish`, the run is shown as failed.

        Raises:
            OSError: the tracker failed or did not answer in time.
        """
        if self._worker is None:
            return
        end = time.monotonic() + LIMIT_S
        try:
            with self._worker:
                self._queue(lambda: self._ask("end", self._finished))
                for call in self._calls:
                    left = max(0.1, end - time.monotonic())
                    self._worker.finish(call, left, f"end {self.output}")
        except OSError:
            if self._process is not None:  # it ends the run as failed
                with contextlib.suppress(OSError, TimeoutExpired):
                    self._process.stdin.close()
                    self._process.wait(max(0.1, end - time.monotonic()))
            raise
        finally:
            self._worker, self._calls = None, []
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _queue(self, function):
        """Has the thread call a function; raises the error of an earlier call."""
        while self._calls and self._calls[0].done():
            self._calls.pop(0).result()
        self._calls.append(self._worker.start(function))

    def _start(self, step):
        path, run = files.join(self._folder, f"{self._name}_run_id"), None
        if step and files.exists(path):
            run = files.read(path).decode()
        files.make_dirs(self._folder)
        # -P: this folder's tensorboard.py must not hide the package. A session of its
        # own: Ctrl-C must not end the process before the rest is sent.
        command = [sys.executable, "-P", tracker_process.__file__, self._name]
        pipes = {"stdin": PIPE, "stdout": PIPE, "text": True}
        self._process = Popen(command, **pipes, start_new_session=True)
        run = self._ask("start", run, self._folder, self._params)
        files.replace(path, run.encode())

    def _upload(self, paths):
        with tempfile.TemporaryDirectory() as folder:
            for path in filter(files.exists, paths):
                pathlib.Path(folder, files.name(path)).write_bytes(files.read(path))
            self._ask("artifacts", pathlib.Path(paths[0]).stem, folder)

    def _ask(self, *call):
        """Makes a call of `tracker_process` and returns its answer."""
        self._process.stdin.write(f"{json.dumps(call)}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "it ended"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return answer["value"]
