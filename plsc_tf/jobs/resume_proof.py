"""Proves on a user's own options that a resumed run is an unbroken one."""

import json
import os
import pathlib
import subprocess
import sys

from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.options.flagfiles import write_flags
from plsc_tf.parallel import cluster
from plsc_tf.storage import files


def prove(settings):
    """Trains 2 K steps at once, then K steps and, in another process, K more.

    Args:
        settings: the `Settings`; `prove_resume` is K.

    Returns:
        dict, see `compare`.

    Raises:
        ValueError: model_save_dir is not on a local disk, or this is a cluster.
        RuntimeError: one of the trainings failed.
    """
    if cluster.resolve(settings.cluster, os.environ) is not None:
        raise ValueError(
            "prove_resume starts its own processes, one after the other: run it "
            "without cluster_node_ips, TF_CONFIG and the launcher."
        )
    steps = settings.checkpoints.prove_resume
    folder = _fresh(settings.checkpoints.model_save_dir)
    logging.info("Unbroken: %d steps.", 2 * steps)
    _train(settings, folder, "unbroken", 2 * steps)
    logging.info("With a stop after %d steps.", steps)
    _train(settings, folder, "resumed", steps)
    _train(settings, folder, "resumed", 2 * steps)
    return compare(folder, steps)


def compare(folder, steps):
    """Compares the two trainings of a proof.

    Args:
        folder: that of the proof.
        steps: after which the second one was stopped.

    Returns:
        dict: `exact`, whether all losses and all files of the last checkpoints are
        equal bit for bit; `steps`; `stopped_at`; `first_difference`, the first step
        whose loss differs, or None; `files_differ`; `folder`.
    """
    losses = [_losses(folder, name) for name in ("unbroken", "resumed")]
    differing = sorted(map(int, _unequal(*losses)))
    unequal = _unequal(*(_hashes(folder, name) for name in ("unbroken", "resumed")))
    return {
        "exact": bool(losses[0]) and not differing and not unequal,
        "steps": 2 * steps,
        "stopped_at": steps,
        "first_difference": differing[0] if differing else None,
        "files_differ": unequal,
        "folder": folder,
    }


def text(proof):
    """The result of `prove` in words; the last line is one JSON object."""
    if proof["exact"]:
        result = (
            f"Exact: {proof['steps']} losses and all weights and optimizer states are "
            f"equal bit for bit with a stop after step {proof['stopped_at']}."
        )
    elif proof["first_difference"] is not None:
        result = (
            f"NOT exact: the loss of step {proof['first_difference']} differs. "
            "--deterministic leaves out the operations that TensorFlow reorders."
        )
    else:
        result = f"NOT exact: these files differ: {', '.join(proof['files_differ'])}."
    return f"{result}\n\n{json.dumps(proof)}"


def _fresh(save_dir):
    """A folder below the run's that does not exist yet."""
    if not files.is_local(save_dir):
        raise ValueError(
            "prove_resume compares files on a local disk. Received: model_save_dir="
            f"{save_dir!r}; give a local one for the proof."
        )
    number, path = 1, os.path.join(save_dir, "prove_resume")
    while os.path.exists(path):
        number += 1
        path = os.path.join(save_dir, f"prove_resume-{number}")
    return path


def _train(settings, folder, name, stop_at_step):
    """Trains in a process of its own, up to a step."""
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
            f"The training of the proof ended with status {done.returncode}; its "
            f"messages are above. Its command is {' '.join(command)}"
        )


def _losses(folder, name):
    """`{step: loss as it is written}`."""
    path = pathlib.Path(folder, name, "losses.txt")
    lines = path.read_text(encoding="ascii").splitlines()
    return dict(line.split() for line in lines)


def _hashes(folder, name):
    """SHA-256 of every file of the last checkpoint."""
    path = catalog.find_all(os.path.join(folder, name))[-1][1]
    described = manifest.read(path)["files"]
    return {file: entry["sha256"] for file, entry in described.items()}


def _unequal(one, other):
    """Keys whose values are not the same in two dicts."""
    return sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
