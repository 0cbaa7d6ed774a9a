"""One checkpoint: a folder of weights, class rows and a manifest.

    manifest.json        what is here: shapes, files, sizes, SHA-256, the run's state
    replicated.npz       weights that every replica holds, and their optimizer slots
    rows/<name>-<a>-<b>.npy   rows [a, b) of the head's weights and slots

Rows are those of the whole head, however many replicas hold them, so a checkpoint
loads on any number of devices. The folder is written under a temporary name and
renamed when it is complete.
"""

import hashlib
import io
import json
import os
import re
import uuid

import numpy as np
import tensorflow as tf
from absl import logging

FORMAT = 1
MANIFEST = "manifest.json"
MAX_FILE_BYTES = 256 * 1024 * 1024


def save(path, *, variables, arrays, state):
    """Writes a checkpoint folder.

    Args:
        path: the folder; it must not exist.
        variables: `{name: keras.Variable}` that every replica holds.
        arrays: `{name: ShardedRows or ReplicatedRows}`.
        state: JSON-compatible dict.

    Raises:
        FileExistsError: `path` is there already; nothing is overwritten.
    """
    if tf.io.gfile.exists(path):
        raise FileExistsError(f"Checkpoint {path} is there already; not overwritten.")
    temporary = f"{path.rstrip('/')}.writing-{uuid.uuid4().hex[:8]}"
    files = {}
    try:
        tf.io.gfile.makedirs(os.path.join(temporary, "rows"))
        buffer = io.BytesIO()
        np.savez(buffer, **{name: v.numpy() for name, v in variables.items()})
        files["replicated.npz"] = _write(temporary, "replicated.npz", buffer)
        described = {
            name: _save_rows(temporary, name, array, files)
            for name, array in arrays.items()
        }
        manifest = {
            "format": FORMAT,
            "state": state,
            "variables": {
                name: {"path": v.path, "shape": list(v.shape), "dtype": str(v.dtype)}
                for name, v in variables.items()
            },
            "arrays": described,
            "files": files,
        }
        text = json.dumps(manifest, indent=1)
        _write(temporary, MANIFEST, io.BytesIO(text.encode()))
        tf.io.gfile.rename(temporary, path)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)


def read_manifest(path):
    """The manifest of a checkpoint folder.

    Raises:
        FileNotFoundError: there is none: not a checkpoint, or one that was never
            completed.
        ValueError: another version of the format.
    """
    name = os.path.join(path, MANIFEST)
    if not tf.io.gfile.exists(name):
        raise FileNotFoundError(
            f"{path} is no complete checkpoint: it has no {MANIFEST}."
        )
    try:
        with tf.io.gfile.GFile(name) as file:
            manifest = json.load(file)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"Checkpoint {path} is damaged: {MANIFEST} is no JSON ({error}). Use "
            "another checkpoint of the run."
        ) from error
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{path} has checkpoint format {manifest.get('format')}; this version of "
            f"plsc_tf reads format {FORMAT}."
        )
    return manifest


def restore(path, *, variables, arrays):
    """Loads a checkpoint into variables and rows, after checking all of it.

    Args:
        path: the checkpoint folder.
        variables: `{name: keras.Variable}` to load; others in the file are left.
        arrays: `{name: ShardedRows or ReplicatedRows}` to load.

    Returns:
        the state dict given to `save`.

    Raises:
        ValueError: something asked for is missing, has another shape, or a file is
            damaged; nothing is changed then.
    """
    manifest = read_manifest(path)
    _compare(path, "weights", manifest["variables"], variables)
    _compare(path, "class rows", manifest["arrays"], arrays)
    names = ["replicated.npz"]
    for name in arrays:
        names += [part["file"] for part in manifest["arrays"][name]["parts"]]
    for name in names:
        _verify(path, name, manifest["files"][name])
    with tf.io.gfile.GFile(os.path.join(path, "replicated.npz"), "rb") as file:
        stored = np.load(io.BytesIO(file.read()), allow_pickle=False)
    for name, variable in variables.items():
        variable.assign(stored[name])
    for name, array in arrays.items():
        for part in manifest["arrays"][name]["parts"]:
            with tf.io.gfile.GFile(os.path.join(path, part["file"]), "rb") as file:
                rows = np.load(io.BytesIO(file.read()), allow_pickle=False)
            array.write(part["first"], rows)
    return manifest["state"]


def find_all(directory):
    """Complete checkpoints below a run's folder: [(global step, path)], oldest first.

    Of two at one step, that of the finished epoch comes last.

    Args:
        directory: the run's folder; may not exist.
    """
    if not tf.io.gfile.isdir(directory):
        return []
    found = []
    for name in tf.io.gfile.listdir(directory):
        name = name.rstrip("/")
        if not re.fullmatch(r"\d+|step_\d+", name):
            continue
        path = os.path.join(directory, name)
        if tf.io.gfile.exists(os.path.join(path, MANIFEST)):
            state = read_manifest(path)["state"]
            place = (state["global_step"], state.get("epoch", 0), path)
            found.append(place)
    return [(step, path) for step, _, path in sorted(found)]


def resolve(path):
    """The checkpoint that a user means by a checkpoint folder or a run's folder.

    Raises:
        FileNotFoundError: neither is there.
    """
    if tf.io.gfile.exists(os.path.join(path, MANIFEST)):
        return path
    found = find_all(path)
    if not found:
        raise FileNotFoundError(
            f"checkpoint_dir '{path}' holds no checkpoint: expected {MANIFEST}, or "
            "checkpoint folders such as 0, 1, … or step_1000 of a training's "
            "model_save_dir."
        )
    return found[-1][1]


def prune(directory, keep):
    """Removes the oldest checkpoints of a run so that `keep` stay; 0 keeps all."""
    if not keep:
        return
    for _, path in find_all(directory)[:-keep]:
        # The manifest first: what is left by an interruption is no checkpoint.
        tf.io.gfile.remove(os.path.join(path, MANIFEST))
        tf.io.gfile.rmtree(path)
        logging.info("Removed the old checkpoint %s", path)


def _save_rows(folder, name, array, files):
    rows, *rest = array.shape
    row_bytes = int(np.prod(rest, dtype=np.int64)) * np.dtype(array.dtype).itemsize
    step = max(1, MAX_FILE_BYTES // row_bytes)
    parts = []
    for low in range(0, rows, step):
        high = min(low + step, rows)
        file = f"rows/{name.replace('/', '.')}-{low:010d}-{high:010d}.npy"
        buffer = io.BytesIO()
        np.save(buffer, array.read(low, high))
        files[file] = _write(folder, file, buffer)
        parts.append({"file": file, "first": low, "last": high - 1})
    return {"shape": list(array.shape), "dtype": str(array.dtype), "parts": parts}


def _write(folder, name, buffer):
    content = buffer.getbuffer()
    with tf.io.gfile.GFile(os.path.join(folder, name), "wb") as file:
        file.write(bytes(content))
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _verify(path, name, expected):
    digest = hashlib.sha256()
    try:
        with tf.io.gfile.GFile(os.path.join(path, name), "rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
    except tf.errors.NotFoundError:
        raise ValueError(f"Checkpoint {path} is damaged: {name} is missing.") from None
    if digest.hexdigest() != expected["sha256"]:
        raise ValueError(
            f"Checkpoint {path} is damaged: {name} does not have the SHA-256 of its "
            "manifest. Use another checkpoint of the run."
        )


def _compare(path, kind, stored, wanted):
    """Raises one ValueError that lists what does not fit."""
    problems = []
    for name, value in wanted.items():
        if name not in stored:
            problems.append(f"{name}: not in the checkpoint")
        elif list(stored[name]["shape"]) != list(value.shape):
            problems.append(
                f"{name}: {stored[name]['shape']} in the checkpoint, "
                f"{list(value.shape)} here"
            )
    if problems:
        listed = "; ".join(problems[:5]) + (" …" if len(problems) > 5 else "")
        raise ValueError(
            f"Checkpoint {path} does not fit this model's {kind}: {listed}. "
            "Use the model_name, emb_size, num_classes and optimizer it was made with."
        )
