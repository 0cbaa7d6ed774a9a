"""Launchers as processes of their own, with workers that are small scripts."""

import contextlib
import os
import pathlib
import signal

import pytest

from tests import programs, waiting

# A test that waits longer has failed.
LIMIT_S = 60
# What every script of a worker begins with.
PRELUDE = """
import json, os, pathlib, signal, subprocess, sys, time

config = json.loads(os.environ.get("TF_CONFIG", "{}"))
index = config["task"]["index"] if config else 0

def note(name, text=""):
    part = pathlib.Path(f".{name}-{index}")
    part.write_text(str(text))
    part.rename(f"{name}-{index}")

def wait(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)

note("pid", os.getpid())
"""


class Launchers:
    """Starts launchers in a folder, and leaves none behind."""

    def __init__(self, folder):
        self.folder = folder
        self.started = []

    def script(self, body, name="job.py"):
        (self.folder / name).write_text(PRELUDE + body)
        return name

    def start(self, *arguments, **environ):
        words = "-m", "tests.launch.driver", *arguments
        # Under nohup it would be ignored, which a launcher respects.
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        try:
            process = programs.start(*words, cwd=self.folder, **environ)
        finally:
            signal.signal(signal.SIGHUP, before)
        self.started.append(process)
        return process

    def result(self, process):
        return programs.end(process, LIMIT_S)

    def run(self, *arguments, **environ):
        return self.result(self.start(*arguments, **environ))

    def wait_for(self, *names):
        self.until(lambda: all((self.folder / name).exists() for name in names))

    def until(self, condition):
        waiting.wait_for(condition, LIMIT_S)

    def read(self, name):
        return (self.folder / name).read_text()

    def pids(self):
        return [int(path.read_text()) for path in self.folder.glob("pid-*")]

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
        # Workers outlive a killed launcher only where a test has failed.
        for pid in self.pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if runs(pid) and os.readlink(f"/proc/{pid}/cwd") == str(self.folder):
                    os.kill(pid, signal.SIGKILL)


def runs(pid):
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture
def launchers(tmp_path):
    started = Launchers(tmp_path)
    yield started
    started.end()
