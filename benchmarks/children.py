"""Other processes of a benchmark: functions, commands that print figures, trainings."""

import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]


def call(function, *arguments):
    """Calls a function in a new process, which is killed then; returns its result.

    Raises:
        RuntimeError: the process ended before, such as by an error, which it printed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"The process ended with {process.exitcode}.") from None
    finally:
        process.kill()
        process.join()


def _send(sender, function, arguments):
    sender.send(function(*arguments))
    time.sleep(3600)  # nothing is done at its end


def last_line(*words, python=sys.executable):
    """The JSON that a Python process prints last.

    Args:
        *words: its command line after the interpreter; paths start at the clone.
        python: the interpreter.

    Raises:
        RuntimeError: it printed none. The message ends with its standard error.
    """
    command = [python, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        status, errors = done.returncode, done.stderr.strip()
        raise RuntimeError(
            f"{' '.join(command)} failed with status {status}:\n{errors}"
        ) from None


def train(arguments, run_dir, tree=ROOT):
    """Trains with the code of a clone.

    Args:
        arguments: of `plsc_tf.train`.
        run_dir: the run's folder.
        tree: the clone.

    Raises:
        RuntimeError: the training failed.
    """
    command = [sys.executable, "-m", "plsc_tf.train", *arguments]
    command += ["--noexport_at_end", f"--model_save_dir={run_dir}"]
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    ended = subprocess.run(command, cwd=tree, env=environ, stdout=subprocess.DEVNULL)
    if ended.returncode:
        raise RuntimeError(f"The command failed in {tree}: {' '.join(command)}")
