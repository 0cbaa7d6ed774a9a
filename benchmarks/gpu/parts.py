"""A part of a step: one measurement, which a process of its own carries out."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from benchmarks.children import ROOT


class NotAvailableError(RuntimeError):
    """Raised by a measurement that this machine cannot make, with the reason."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One measurement of a step.

    Attributes:
        step: letter of the step.
        name: name of the measurement within the step.
        function: dotted path of the function that measures and returns a dict.
        arguments: its keyword arguments, JSON values.
        limit_s: seconds after which its process is ended.
    """

    step: str
    name: str
    function: str
    arguments: dict = dataclasses.field(default_factory=dict)
    limit_s: float = 240.0


def run(parts, log, limit_s):
    """Runs parts one after the other in one new process.

    Args:
        parts: list of `Part`.
        log: file to which the output of the process is appended.
        limit_s: seconds after which the process, and what it has started, is ended.

    Returns:
        one dict per part: `seconds` and either `figures`, `skipped` (the reason) or
        `error`.
    """
    with tempfile.TemporaryDirectory(prefix="plsc_tf-gpu-") as folder:
        found = pathlib.Path(folder, "found.jsonl")
        words = json.dumps([dataclasses.asdict(part) for part in parts])
        with open(log, "a", encoding="utf-8") as stream:
            stream.write("".join(f"==== {part.step}: {part.name}\n" for part in parts))
            stream.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu.child", str(found)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                text=True,
            )
            ending = _wait(process, words, limit_s)
        lines = []
        if found.exists():
            lines = list(map(json.loads, found.read_text("utf-8").splitlines()))
    # The part after the last line was running when the process ended.
    lines += [{"seconds": None, "error": ending}] * (len(parts) - len(lines))
    return lines


def _wait(process, words, limit_s):
    """Returns how a process ended, in words; none outlives its time."""
    start = time.monotonic()
    try:
        process.communicate(words, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"was ended after {time.monotonic() - start:.0f} s, its time limit"
    finally:
        # Its own children, such as the ranks of arcface_torch, end with it.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    status = process.returncode
    if status == -signal.SIGKILL:
        return "was killed, probably because memory ran out"
    return f"ended with status {status} before its result; see the log"
