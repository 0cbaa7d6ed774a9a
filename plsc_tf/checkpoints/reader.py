"""Reads checkpoints: verifies the requested files first, then loads them in chunks."""

import concurrent.futures
import functools
import os
import tempfile

import numpy as np

from plsc_tf.checkpoints import manifest as manifests
from plsc_tf.checkpoints.content import row_size
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.checkpoints.stored_rows import StoredRows
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

# Rows are read and handed over in pieces of about this size.
CHUNK_BYTES = 16_000_000
THREADS = 2


def verify(path, content, names=None):
    """Compares files with their sizes and checksums.

    Args:
        path: the checkpoint folder.
        content: its manifest.
        names: files to check; None: all of them.

    Raises:
        DamagedCheckpointError: names the first file that is missing or differs.
    """
    names = sorted(content["files"] if names is None else names)
    for name in names:
        if name not in content["files"]:
            raise DamagedCheckpointError(path, f"its manifest does not know {name}")
        expected, place = content["files"][name]["bytes"], files.join(path, name)
        if not files.exists(place):
            raise DamagedCheckpointError(path, f"{name} is missing")
        size = files.size(place)
        if size != expected:
            raise DamagedCheckpointError(
                path, f"{name} has {size} bytes instead of {expected}"
            )
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        digests = pool.map(lambda n: files.checksum(files.join(path, n))[1], names)
        for name, digest in zip(names, digests, strict=True):
            if digest != content["files"][name]["sha256"]:
                raise DamagedCheckpointError(
                    path, f"{name} does not have the SHA-256 of its manifest"
                )


def restore(path, *, network=None, variables=None, arrays=None, verified=False):
    """Loads a checkpoint, after checking all requested files.

    Args:
        path: the checkpoint folder.
        network: backbone to load, a Keras model; None: leave it out.
        variables: `{name: keras.Variable}` to load that only a resume needs.
        arrays: `{name: ShardedRows or ReplicatedRows}` to load.
        verified: whether `verify` has just checked all files.

    Returns:
        the state dict that was saved.

    Raises:
        DamagedCheckpointError: a file is not what was written; nothing is changed.
        ValueError: something is missing or has another shape; nothing is changed.
    """
    content = manifests.read(path)
    variables, arrays = variables or {}, arrays or {}
    _compare(path, content, network, variables, arrays)
    if not verified:
        verify(path, content, _files_of(content, network, variables, arrays))
    jobs = []
    for name, array in arrays.items():
        stored = StoredRows(path, content["arrays"][name])
        jobs += [(stored, array, part) for part in content["arrays"][name]["parts"]]
    if variables:
        stored = read_variables(path, content, variables)
        for name, variable in variables.items():
            variable.assign(stored[name])
    if network is not None:
        with tempfile.TemporaryDirectory(prefix="plsc_tf-") as folder:
            name = content["backbone"]["file"]
            network.load_weights(local_file(path, name, folder))
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda job: _load_part(*job), jobs))
    return content["state"]


def local_file(path: str, name: str, folder: str) -> str:
    """A path on this machine of a file of a checkpoint.

    Args:
        path: the checkpoint folder, verified.
        name: of the file, as its manifest has it.
        folder: where to put a copy of a remote file.
    """
    stored = files.join(path, name)
    if files.is_local(stored):
        return local_path(stored)
    local = os.path.join(folder, os.path.basename(name))
    files.write(local, functools.partial(files.open_read, stored))
    return local


def _files_of(content, network, variables, arrays):
    names = [part["file"] for n in arrays for part in content["arrays"][n]["parts"]]
    if network is not None:
        names.append(content["backbone"]["file"])
    if variables:
        names.append(content["training"]["file"])
    return names


def read_variables(path, content, names):
    """The arrays that only a resume needs, `{name: array}`.

    Args:
        path: the checkpoint folder, verified.
        content: its manifest.
        names: of the arrays.
    """
    with tempfile.TemporaryDirectory(prefix="plsc_tf-") as folder:
        local = local_file(path, content["training"]["file"], folder)
        with np.load(local, allow_pickle=False) as stored:
            return {name: stored[name] for name in names}


def _load_part(stored, array, part):
    """Reads the rows of one file that belong to this process, chunk by chunk."""
    first, end = array.here()
    first, end = max(first, part["first"]), min(end, part["last"] + 1)
    rows = max(1, CHUNK_BYTES // row_size(stored.shape, stored.dtype))
    if first < end:
        for start, stop in array.spans(first, end, rows):
            array.write(start, stored.read(start, stop))


def _compare(path, content, network, variables, arrays):
    """Raises one ValueError that lists what does not fit."""
    problems = []
    if network is not None:
        problems += _compare_backbone(content["backbone"]["weights"], network)
    if variables and content["kind"] != "training":
        raise ValueError(
            f"Checkpoint {path} holds weights only, which no training can resume from. "
            f"Start a new one from them: --checkpoint_dir={path}."
        )
    stored = content["training"].get("variables", {})
    problems += _compare_shapes(stored, variables)
    problems += _compare_shapes(content["arrays"], arrays)
    for name in set(arrays) & set(content["arrays"]):
        problems += _gaps(name, content["arrays"][name])
    if problems:
        listed = "; ".join(problems[:5]) + (" …" if len(problems) > 5 else "")
        raise ValueError(
            f"Checkpoint {path} does not fit this model: {listed}. Use the "
            "model_name, emb_size, num_classes, sub_centers and "
            "optimizer it was made with."
        )


def _compare_backbone(stored, network):
    problems, weights = [], network.weights
    if len(stored) != len(weights):
        problems.append(
            f"{len(stored)} backbone weights in the checkpoint, {len(weights)} here"
        )
    for described, weight in zip(stored, weights, strict=False):
        if described["shape"] != list(weight.shape):
            problems.append(
                f"{weight.path}: {described['shape']} in the checkpoint, "
                f"{list(weight.shape)} here"
            )
    return problems


def _compare_shapes(stored, wanted):
    problems = []
    for name, value in wanted.items():
        if name not in stored:
            problems.append(f"{name}: not in the checkpoint")
        elif stored[name]["shape"] != list(value.shape):
            problems.append(
                f"{name}: {stored[name]['shape']} in the checkpoint, "
                f"{list(value.shape)} here"
            )
    return problems


def _gaps(name, described):
    """Rows that no file holds, or several do."""
    expected, problems = 0, []
    for part in sorted(described["parts"], key=lambda part: part["first"]):
        if part["first"] != expected:
            problems.append(
                f"{name}: its files continue at row {part['first']} after {expected}"
            )
        expected = part["last"] + 1
    if expected != described["shape"][0]:
        problems.append(
            f"{name}: its files end at row {expected} of {described['shape'][0]}"
        )
    return problems
