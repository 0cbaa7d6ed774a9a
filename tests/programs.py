"""Runs Python programs in processes of their own."""

import collections
import contextlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


# The exit status of a program, and what it wrote.
Result = collections.namedtuple("Result", ("status", "out", "err"))


def start(*words, cwd=ROOT, **environ):
    """Starts `python <words>`, which finds plsc_tf and tests; returns the `Popen`.

    Args:
        *words: arguments of the interpreter.
        cwd: its working directory.
        **environ: changes of the environment; None removes a variable.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={name: value for name, value in environ.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process, timeout=None):
    """Waits until a process ends, and kills it if that takes too many seconds.

    What was read of its pipes before, and what Python has buffered, is missing.
    """
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
        process.wait()
    return Result(process.returncode, out, err)


def run(*words, status=0, timeout=None, **options):
    """Runs `python <words>` to its end, and returns its `Result`.

    Args:
        *words: arguments of the interpreter.
        status: the exit status that it must have; None for any.
        timeout: of `end`.
        **options: of `start`.
    """
    done = end(start(*words, **options), timeout)
    assert status in (None, done.status), done.out + done.err
    return done


def run_together(commands, *, status=0, timeout=None, **options):
    """Runs several `python <words>` at the same time, and returns their `Result`s.

    Args:
        commands: the words of each of them.
        status, timeout, **options: of `run`.
    """
    with contextlib.ExitStack() as stack:
        started = []
        for words in commands:
            process = start(*words, **options)
            started.append(stack.enter_context(process))
            stack.callback(process.kill)
        found = [end(process, timeout) for process in started]
    for done in found:
        assert status in (None, done.status), done.out + done.err
    return found
