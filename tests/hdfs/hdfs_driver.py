"""A process with TensorFlow and a Java machine in it, that makes calls for the tests.

    python hdfs_driver.py

It reads lines `{"function": "module:name", "arguments": [...]}` and answers each with
`{"value": ...}` or `{"error": {...}}`. A Java machine takes over a process (signals,
fork), so the tests do not start one in theirs.
"""

import importlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading

from absl import logging

from tests.waiting import wait_for

HERE = pathlib.Path(__file__).parent


class RemoteCallError(Exception):
    """What a call raised in the driver.

    Attributes:
        kind: name of the error's class.
        errno: its number, None if it has none.
    """

    def __init__(self, kind, errno, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.errno = errno


class Driver:
    """The tests' side of the process.

    Attributes:
        pid: number of the process.
        log: path of all that it and Java print.
    """

    def __init__(self, environment, log):
        self.log = pathlib.Path(log)
        # The repository, and the tests' own modules.
        paths = [str(HERE.parents[1]), str(HERE), environment.get("PYTHONPATH", "")]
        with open(log, "w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "hdfs_driver.py")],
                env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.pid = self._process.pid
        self._answers = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def call(self, function, *arguments, limit_s=300):
        """Calls `module:name` there and returns its value, or raises its error."""
        self.begin(function, *arguments)
        return self.end(limit_s)

    def begin(self, function, *arguments):
        """Begins a call; `end` waits for it."""
        call = {"function": function, "arguments": arguments}
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()

    def end(self, limit_s=300):
        """Returns the value of the call that was begun, or raises its error."""
        if "error" in (answer := json.loads(self._answers.get(timeout=limit_s))):
            raise RemoteCallError(**answer["error"])
        return answer["value"]

    def wait_for(self, path, limit_s=300):
        """Waits until the call that was begun makes a file; not if it ends before."""
        wait_for(lambda: path.exists() or not self._answers.empty(), limit_s)
        assert path.exists(), self.end()

    def stop(self):
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def _read(self):
        for line in self._process.stdout:
            self._answers.put(line)


def serve():
    """The process's side: calls and answers, until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.set_verbosity(logging.INFO)
    for line in sys.stdin:
        call = json.loads(line)
        module, _, name = call["function"].partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
            answer = {"value": function(*call["arguments"])}
        except Exception as error:  # noqa: BLE001 - raised again by the test
            number = getattr(error, "errno", None)
            told = {"kind": type(error).__name__, "errno": number}
            answer = {"error": {**told, "message": str(error)}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
