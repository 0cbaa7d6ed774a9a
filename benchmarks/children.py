"""Other processes of a benchmark: commands that print figures, and trainings."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def last_line(*words, python=sys.executable):
    """The JSON that a Python process prints last.

    Args:
        *words: its command line after the interpreter; paths start at the clone.
        python: the interpreter.

    Raises:
        RuntimeError: it printed none. The last line of the message is that of its
            standard error.
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


def run_training(arguments, run_dir, tree=ROOT):
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


def train(record, run_dir, arguments, figures_of):
    """Trains, unless an earlier call has; returns the figures.

    Args:
        record: name of the file in `run_dir` that holds the figures of a finished run.
        run_dir: the run's folder.
        arguments: further options of `plsc_tf.train`.
        figures_of: function that makes the figures of the run's `results.json`.

    Raises:
        RuntimeError: the training failed.
    """
    run_dir = pathlib.Path(run_dir)
    done = run_dir / record
    if done.exists():
        return json.loads(done.read_text(encoding="utf-8"))
    run_training([*arguments, "--notensorboard", "--norun_report"], run_dir)
    text = (run_dir / "results.json").read_text(encoding="utf-8")
    figures = figures_of(json.loads(text))
    done.write_text(json.dumps(figures), encoding="utf-8")
    return figures
