"""Launchers as processes of their own, with workers that are small scripts."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
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


@dataclasses.dataclass
class Result:
    """What a launcher has done."""

    status: int
    out: str
    err: str


class Launchers:
    """Starts launchers in a folder, and leaves none behind."""

    def __init__(self, folder):
        self.folder = folder
        self.started = []

    def script(self, body, name="job.py"):
        (self.folder / name).write_text(PRELUDE + body)
        return name

    def start(self, *arguments, **environ):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.launch.driver", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Under nohup it would be ignored, which a launcher respects.
            preexec_fn=_heed_hangups,
        )
        self.started.append(process)
        return process

    def result(self, process):
        out, err = process.communicate(timeout=LIMIT_S)
        return Result(process.returncode, out, err)

    def run(self, *arguments, **environ):
        return self.result(self.start(*arguments, **environ))

    def wait_for(self, *names):
        self.until(lambda: all((self.folder / name).exists() for name in names))

    def until(self, condition):
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.01)

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


def _heed_hangups():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
