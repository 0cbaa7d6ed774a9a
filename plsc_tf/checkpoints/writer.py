"""Writes checkpoints: a complete one, or nothing that looks like one."""

import concurrent.futures
import functools
import os
import platform
import tempfile
import uuid

import keras
import numpy as np
import tensorflow as tf
from absl import logging

import plsc_tf
from plsc_tf.checkpoints import content as contents
from plsc_tf.checkpoints import manifest
from plsc_tf.parallel.single_worker import SingleWorker
from plsc_tf.storage import files
from plsc_tf.storage.errors import StorageError
from plsc_tf.storage.paths import local_path

BACKBONE = "backbone.weights.h5"
TRAINING = "training.npz"
# In the name of a folder that is being written; `catalog.sweep` removes remains.
WRITING = ".writing-"
# Checksums and writing keep about this many cores and disks busy.
THREADS = 2


def save(path, content, group=None, alive=None):
    """Writes a checkpoint folder; every worker of a cluster writes its own rows.

    Where the store can rename a folder in one go it is written under a temporary
    name; elsewhere the manifest, which comes last, makes it a checkpoint.

    Args:
        path: the folder; it must not exist.
        content: the `Content`.
        group: the `Group` of workers, all of which must call this; None: there is
            one.
        alive: function that is called after each file.

    Returns:
        int: bytes written, by all workers.

    Raises:
        FileExistsError: `path` already exists; nothing is overwritten.
        OSError: it could not be written, for example because the disk is full; the
            incomplete folder is removed. All workers raise the error of one.
    """
    path, group = path.rstrip("/"), group or SingleWorker()
    target = _agree(group, f"begin {path}", functools.partial(_begin, path, group))[0]
    try:
        shares = _agree(
            group,
            f"write {path}",
            functools.partial(_write_share, target, content, group.is_chief, alive),
        )
        finish = functools.partial(_finish, path, target, content, shares)
        _agree(group, f"finish {path}", finish if group.is_chief else None)
    except BaseException:
        if group.is_chief:
            _remove(target)
        raise
    return sum(file["bytes"] for share in shares for file in share["files"].values())


def _agree(group, name, function):
    """Calls a function on every worker; returns what they return, for all of them.

    Raises:
        OSError: on all workers, what it has raised on one of them.
    """
    value, problem, error = None, None, None
    try:
        value = function() if function else None
    except OSError as caught:
        error, problem = caught, [caught.errno, str(caught)]
    outcomes = group.gather(name, {"value": value, "problem": problem})
    if error is not None:
        raise error
    for index, outcome in enumerate(outcomes):
        if outcome["problem"]:
            number, text = outcome["problem"]
            raise StorageError(f"worker {index}: {text}", number)
    return [outcome["value"] for outcome in outcomes]


def _begin(path, group):
    """Makes the folder that is written to; returns its path."""
    if not group.is_chief:
        return None
    if files.exists(path):
        raise FileExistsError(f"Checkpoint {path} already exists; not overwritten.")
    target = path
    if files.atomic_rename(path):
        target = f"{path}{WRITING}{uuid.uuid4().hex[:8]}"
    files.make_dirs(files.join(target, "rows"))
    return target


def _write_share(target, content, is_chief, alive):
    """Writes this worker's share; returns its files and the parts of arrays."""
    arrays = {
        name: array
        for name, array in content.arrays.items()
        if is_chief or array.here() != (0, array.shape[0])
    }
    jobs = {}
    if is_chief:
        jobs[BACKBONE] = functools.partial(_write_local, content.save_backbone)
        if content.kind == "training":
            jobs[TRAINING] = functools.partial(_write_local, content.save_variables)
    parts = {name: contents.parts(name, array) for name, array in arrays.items()}
    for name, array in arrays.items():
        for part in parts[name]:
            jobs[part["file"]] = functools.partial(
                _write_rows, array, part["first"], part["last"] + 1
            )
    return {"files": _write_files(target, jobs, alive), "parts": parts}


def _finish(path, target, content, shares):
    """Writes the manifest of all workers' files, which makes the checkpoint."""
    files.write(
        files.join(target, manifest.NAME), manifest.encode(_describe(content, shares))
    )
    if target != path:
        files.rename(target, path)


def _remove(target):
    try:
        if files.exists(target):
            files.remove_tree(target)
    except OSError as error:
        # The caller should see the first error.
        logging.warning("Could not remove the incomplete %s: %s", target, error)


def _write_files(target, jobs, alive):
    """Writes files by `{name: function of a path}`; calls `alive` after each.

    Returns:
        `{name: {"bytes", "sha256"}}`.
    """
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        futures = {
            name: pool.submit(job, files.join(target, name))
            for name, job in jobs.items()
        }
        for future in futures.values():
            if alive is not None:
                future.add_done_callback(lambda _: alive())
        try:
            # The first error cancels the jobs that have not started.
            first = concurrent.futures.FIRST_EXCEPTION
            done, _ = concurrent.futures.wait(futures.values(), return_when=first)
            for future in done:
                future.result()
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _write_rows(array, low, high, path):
    chunks = functools.partial(contents.npy_chunks, array, low, high)
    written = _entry(files.write(path, chunks, checksum=True))
    array.release(low, high)
    return written


def _write_local(save_to, path):
    """Writes a file whose writer knows local paths only."""
    if files.is_local(path):
        # A temporary file elsewhere would stay there after a kill.
        path = local_path(path)
        save_to(path)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        return _entry(files.checksum(path))
    with tempfile.TemporaryDirectory(prefix="plsc_tf-") as folder:
        local = os.path.join(folder, files.name(path))
        save_to(local)
        chunks = functools.partial(files.open_read, local)
        return _entry(files.write(path, chunks, checksum=True))


def _entry(written):
    size, digest = written
    return {"bytes": size, "sha256": digest}


def _describe(content, shares):
    arrays = {
        name: {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "parts": [p for share in shares for p in share["parts"].get(name, [])],
        }
        for name, array in content.arrays.items()
    }
    written = {name: file for s in shares for name, file in s["files"].items()}
    return {
        "format": manifest.FORMAT,
        "kind": content.kind,
        "versions": {
            "plsc_tf": plsc_tf.__version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "state": content.state,
        "backbone": {"file": BACKBONE, "weights": content.describe_backbone()},
        "training": {"file": TRAINING, "variables": content.describe_variables()}
        if content.kind == "training"
        else {},
        "arrays": arrays,
        "files": written,
    }
