"""Writes checkpoints: a complete one, or nothing that looks like one.

TensorFlow never changes a value that something refers to: an update of a variable whose
value is referred to elsewhere writes to new memory. So the content of a checkpoint is a
set of references, which takes no time to make; memory is taken only where training
overtakes the writing, at most once the weights and slots.
"""

import concurrent.futures
import dataclasses
import functools
import io
import platform
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

import plsc_tf
from plsc_tf import private_apis
from plsc_tf.checkpoints import manifest
from plsc_tf.checkpoints.rows import row_size
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.storage import files
from plsc_tf.storage.errors import StorageError

BACKBONE = "backbone.weights.h5"
TRAINING = "training.npz"
# In the name of a folder that is being written; `catalog.sweep` removes remains.
WRITING = ".writing-"
# Checksums and writing keep about this many cores and disks busy.
THREADS = 2
# Rows of a file; the last file of an array may be smaller.
FILE_BYTES = 256_000_000


class BackgroundSaver:
    """Runs one function at a time on another thread; no error is lost.

    A process that ends waits for a save in flight.
    """

    def __init__(self) -> None:
        self._saving: concurrent.futures.Future | None = None

    def submit(self, function: Callable[[], Any]) -> None:
        """Starts a function after the one before; raises that one's error."""
        self.wait()
        pool = concurrent.futures.ThreadPoolExecutor(1, "plsc_tf-save")
        self._saving = pool.submit(function)
        pool.shutdown(wait=False)

    def check(self) -> None:
        """Raises the error of a function that has ended, once."""
        if not self.busy:
            self.wait()

    def wait(self) -> None:
        """Waits for the running function; raises its error, once."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    @property
    def busy(self) -> bool:
        """Whether a function is running."""
        return self._saving is not None and not self._saving.done()


@dataclasses.dataclass
class Content:
    """The content of one checkpoint, unchanged while training continues.

    Attributes:
        kind: "training", which a run can resume from, or "weights".
        state: JSON-compatible dict.
        network: the backbone, a Keras model.
        values: `[(keras.Variable, tensor)]` of all its variables.
        variables: `{name: tensor}` that only a resume needs.
        arrays: `{name: rows}`, each with `shape`, `dtype`, `here()`, `pieces(low,
            high)` and `release(low, high)`: `ShardedRows`, `ReplicatedRows`, `Rows` or
            the values that they hold.
    """

    kind: str
    state: dict
    network: keras.Model
    values: list[tuple[keras.Variable, tf.Tensor]]
    variables: dict[str, tf.Tensor]
    arrays: dict[str, Any]

    # HDF5 keeps a file open that it could not write to, tries again as the process
    # ends, and crashes. So it never sees the disk.
    def backbone_file(self) -> memoryview:
        """Keras's own weights file, which `load_weights` reads."""
        buffer = io.BytesIO()
        with keras.StatelessScope(state_mapping=self.values):
            private_apis.save_weights(self.network, buffer)
        return buffer.getbuffer()

    def variables_file(self) -> memoryview:
        """`variables` as one numpy archive."""
        arrays = {name: np.asarray(value) for name, value in self.variables.items()}
        return numpy_archive(arrays)

    def describe_backbone(self) -> list[dict]:
        """Paths, shapes and types of the weights that the weights file holds."""
        held = {id(variable) for variable, _ in self.values}
        return [
            {"path": weight.path, "shape": list(weight.shape), "dtype": weight.dtype}
            for weight in self.network.weights
            if id(weight) in held
        ]

    def describe_variables(self) -> dict[str, dict]:
        """Shapes and types of `variables`."""
        return {
            name: {"shape": list(value.shape), "dtype": tf.as_dtype(value.dtype).name}
            for name, value in self.variables.items()
        }


def numpy_archive(arrays: dict[str, np.ndarray]) -> memoryview:
    """An uncompressed numpy archive of named arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getbuffer()


def save(
    path: str,
    content: Any,
    group: Any = None,
    heartbeat: Callable[[], None] | None = None,
) -> int:
    """Writes a checkpoint folder; every worker of a cluster writes its own rows.

    Where the store can rename a folder in one go it is written under a temporary
    name; elsewhere the manifest, which comes last, makes it a checkpoint.

    Args:
        path: the folder; it must not exist.
        content: the `Content`, or another object with its interface.
        group: the `Group` of workers, all of which must call this; None: there is
            one.
        heartbeat: function that is called after each file.

    Returns:
        bytes written, by all workers.

    Raises:
        FileExistsError: `path` already exists; nothing is overwritten.
        OSError: it could not be written, for example because the disk is full; the
            incomplete folder is removed. All workers raise the error of one.
    """
    path, group = path.rstrip("/"), group or SingleWorker()
    begin = functools.partial(_begin, path) if group.is_chief else None
    target = agree(group, f"begin {path}", begin)[0]
    try:
        write = functools.partial(
            _write_share, target, content, group.is_chief, heartbeat
        )
        shares = agree(group, f"write {path}", write)
        finish = functools.partial(_finish, path, target, content, shares)
        agree(group, f"finish {path}", finish if group.is_chief else None)
    except BaseException:
        if group.is_chief:
            _remove(target)
        raise
    return sum(file["bytes"] for share in shares for file in share["files"].values())


def agree(group: Any, name: str, function: Callable[[], Any] | None) -> list:
    """Calls a function on every worker; returns what they return, for all of them.

    Raises:
        OSError, ValueError: raised by the function; on the other workers a
            `StorageError`.
    """
    value, problem, error = None, None, None
    try:
        value = function() if function else None
    except (OSError, ValueError) as caught:
        error, problem = caught, [getattr(caught, "errno", None), str(caught)]
    outcomes = group.gather(name, {"value": value, "problem": problem})
    if error is not None:
        raise error
    for index, outcome in enumerate(outcomes):
        if outcome["problem"]:
            number, text = outcome["problem"]
            raise StorageError(f"worker {index}: {text}", number)
    return [outcome["value"] for outcome in outcomes]


def _begin(path):
    """Makes the folder that is written to; returns its path."""
    if files.exists(path):
        raise FileExistsError(f"Checkpoint {path} already exists; not overwritten.")
    target = path
    if files.atomic_rename(path):
        target = f"{path}{WRITING}{uuid.uuid4().hex[:8]}"
    files.make_dirs(files.join(target, "rows"))
    return target


def _write_share(target, content, is_chief, heartbeat):
    """Writes this worker's share; returns its files and the parts of arrays."""
    jobs, parts = {}, {}
    if is_chief:
        jobs[BACKBONE] = functools.partial(_write, content.backbone_file)
        if content.kind == "training":
            jobs[TRAINING] = functools.partial(_write, content.variables_file)
    for name, array in content.arrays.items():
        if is_chief or array.here() != (0, array.shape[0]):
            parts[name] = _parts(name, array)
            for part in parts[name]:
                rows = part["first"], part["last"] + 1
                jobs[part["file"]] = functools.partial(_write_rows, array, *rows)
    return {"files": _write_files(target, jobs, heartbeat), "parts": parts}


def _parts(name, array):
    """How the rows of an array that are here are cut into files."""
    first, end = array.here()
    header = len(_npy_header(array, array.shape[0]))
    step = max(1, (FILE_BYTES - header) // row_size(array.shape, array.dtype))
    plain, parts = name.replace("/", "."), []
    for low in range(first, end, step):
        high = min(low + step, end)
        file = f"rows/{plain}-{low:010d}-{high:010d}.npy"
        parts.append({"file": file, "first": low, "last": high - 1})
    return parts


def _write_files(target, jobs, heartbeat):
    """Writes files by `{name: function of a path}`; calls `heartbeat` after each.

    Returns:
        `{name: {"bytes", "sha256"}}`.
    """
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        names = {
            pool.submit(job, files.join(target, name)): name
            for name, job in jobs.items()
        }
        written = {}
        try:
            for future in concurrent.futures.as_completed(names):
                size, digest = future.result()
                written[names[future]] = {"bytes": size, "sha256": digest}
                if heartbeat is not None:
                    heartbeat()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: written[name] for name in jobs}


def _write(content_of, path):
    return files.write(path, content_of())


def _write_rows(array, low, high, path):
    chunks = functools.partial(npy_chunks, array, low, high)
    written = files.write(path, chunks)
    array.release(low, high)
    return written


def npy_chunks(array: Any, low: int, high: int) -> Iterator[bytes | np.ndarray]:
    """The bytes of a numpy file of the rows `[low, high)`, piece by piece."""
    yield _npy_header(array, high - low)
    for piece in array.pieces(low, high):
        yield np.ascontiguousarray(piece)


def _npy_header(array, rows):
    buffer = io.BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(array.dtype)),
        "fortran_order": False,
        "shape": (rows, *array.shape[1:]),
    }
    np.lib.format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


def _finish(path, target, content, shares):
    """Writes the manifest of all workers' files, which makes the checkpoint."""
    described = manifest.encode(_describe(content, shares))
    files.write(files.join(target, manifest.NAME), described)
    if target != path:
        files.rename(target, path)


def _remove(target):
    try:
        if files.exists(target):
            files.remove_tree(target)
    except OSError as error:
        # The caller should see the first error.
        logging.warning("Could not remove the incomplete %s: %s", target, error)


def _describe(content, shares):
    arrays = {
        name: {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "parts": [p for share in shares for p in share["parts"].get(name, [])],
        }
        for name, array in content.arrays.items()
    }
    training = {}
    if content.kind == "training":
        training = {"file": TRAINING, "variables": content.describe_variables()}
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
        "training": training,
        "arrays": arrays,
        "files": {name: file for s in shares for name, file in s["files"].items()},
    }
