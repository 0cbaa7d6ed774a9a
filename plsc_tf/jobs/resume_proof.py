"""Tests with the user's options that a resumed run equals an uninterrupted one."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs import workers
from plsc_tf.options.flagfiles import write_flags
from plsc_tf.options.settings import Settings
from plsc_tf.storage import files


def prove(settings: Settings) -> dict:
    """Compares a training run of 2K steps with one that is stopped and resumed after K.

    Each training runs in its own process.

    Args:
        settings: the `Settings`; `prove_resume` is K.

    Returns:
        A dict; see `compare`.

    Raises:
        ValueError: model_save_dir is not on a local disk, or the settings or the
            environment describe a cluster.
        RuntimeError: one of the runs failed.
    """
    steps = settings.checkpoints.prove_resume
    save_dir = settings.checkpoints.model_save_dir
    workers.require_one_process(settings, "prove_resume")
    if not files.is_local(save_dir):
        raise ValueError(
            "prove_resume needs a model_save_dir on a local disk. Received: "
            f"model_save_dir={save_dir!r}."
        )
    os.makedirs(save_dir, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="prove_resume-", dir=save_dir)
    whole = 2 * steps
    for name, last in (("unbroken", whole), ("resumed", steps), ("resumed", whole)):
        logging.info("Training up to step %d: %s.", last, name)
        _train(settings, folder, name, last)
    return compare(folder, steps)


def compare(folder: str, steps: int) -> dict:
    """Compares the losses and the last checkpoints of the two runs.

    Args:
        folder: folder that holds both trainings.
        steps: step after which the second training was stopped and resumed.

    Returns:
        A dict with `exact`, True if all losses and all files of the last checkpoints
        are bit-identical; `steps`; `stopped_at`; `first_difference`, the first step
        whose loss differs, or None; `files_differ`; `folder`.
    """
    losses, hashes = [], []
    for name in ("unbroken", "resumed"):
        lines = pathlib.Path(folder, name, "losses.txt").read_text(encoding="ascii")
        losses.append(dict(line.split() for line in lines.splitlines()))
        _, checkpoint = catalog.find_all(os.path.join(folder, name))[-1]
        described = manifest.read(checkpoint)["files"]
        hashes.append({file: entry["sha256"] for file, entry in described.items()})
    # `^` keeps the items that are in only one of the two dicts.
    steps_differ = [int(step) for step, _ in losses[0].items() ^ losses[1].items()]
    files_differ = sorted({file for file, _ in hashes[0].items() ^ hashes[1].items()})
    return {
        "exact": bool(losses[0]) and not steps_differ and not files_differ,
        "steps": 2 * steps,
        "stopped_at": steps,
        "first_difference": min(steps_differ, default=None),
        "files_differ": files_differ,
        "folder": folder,
    }


def text(proof: dict) -> str:
    """Describes the result of `prove`; the last line is one JSON object."""
    if proof["exact"]:
        result = (
            f"Exact: {proof['steps']} losses, all weights and the optimizer state are "
            f"bit-identical after stopping at step {proof['stopped_at']} and resuming."
        )
    elif proof["first_difference"] is not None:
        result = (
            f"NOT exact: the loss of step {proof['first_difference']} differs. Try "
            "--deterministic, which avoids TensorFlow's nondeterministic operations."
        )
    else:
        result = f"NOT exact: these files differ: {', '.join(proof['files_differ'])}."
    return f"{result}\n\n{json.dumps(proof)}"


def _train(settings, folder, name, stop_at_step):
    """Trains up to a global step in a separate process."""
    changed = settings.replace(
        model_save_dir=os.path.join(folder, name),
        stop_at_step=stop_at_step,
        prove_resume=0,
        restart=False,
        save_losses=True,
        with_test=False,
        export_at_end=False,
    )
    path = os.path.join(folder, f"{name}.cfg")
    write_flags(changed, path)
    command = [sys.executable, "-m", "plsc_tf.train", f"--flagfile={path}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RuntimeError(
            f"A run ended with status {done.returncode}; see its messages above. "
            f"Its command was: {' '.join(command)}"
        )
