"""Writes checkpoints; an interrupted save leaves nothing that looks like one.

TensorFlow never modifies a value in place while something else refers to it: updating
the variable allocates new memory. Therefore, a checkpoint's content is a set of
references, which costs no time to create. Extra memory is needed only for values that
training updates before they are written, at most the size of all weights and slots.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf import private_apis, versions
from plsc_tf.checkpoints import manifest
from plsc_tf.checkpoints.rows import row_size
from plsc_tf.parallel import packing
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.storage import files, outputs
from plsc_tf.storage.arrays import npy_header

BACKBONE, TRAINING = "backbone.weights.h5", "training.npz"
# Files that are written at once, except beside a training: there, one file takes no
# more of the processor than `cp`, and two would slow down the steps.
THREADS = 2
# Maximum size of a file of rows.
FILE_BYTES = 256_000_000


class BackgroundSaver:
    """Runs one function at a time on another thread; no error is lost.

    At exit, the process waits for a running save.
    """

    def __init__(self) -> None:
        self._saving: concurrent.futures.Future | None = None

    def submit(self, function: Callable[[], Any]) -> None:
        """Starts a function after the previous one ends; raises the previous error."""
        self.wait()
        pool = concurrent.futures.ThreadPoolExecutor(1, "plsc_tf-save")
        self._saving = pool.submit(function)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Waits for the running function; raises its error, but only once."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    @property
    def busy(self) -> bool:
        """True if a function is running."""
        return self._saving is not None and not self._saving.done()


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a checkpoint that one worker writes, other than rows.

    Attributes:
        described: the description of its weights or variables in the manifest.
        buffers: function that returns the buffers of its bytes.
    """

    described: Any
    buffers: Callable[[], Iterable]


# A view from `getbuffer` would crash Python 3.12.1 when it is garbage-collected. HDF5
# writes to memory only: if it fails to write to a file on disk, it keeps the file open,
# tries again when the process exits, and crashes.
def backbone_file(network: keras.Model, values: Sequence = ()) -> File:
    """Returns a Keras weights file, for `load_weights` to read.

    Args:
        network: the backbone.
        values: `[(keras.Variable, tensor)]` for the network's variables; those that are
            not listed have their current values.
    """

    def buffers():
        buffer = io.BytesIO()
        with keras.StatelessScope(state_mapping=values):
            private_apis.save_weights(network, buffer)
        return [memoryview(buffer.getvalue())]

    described = [
        {"path": weight.path, "shape": list(weight.shape), "dtype": weight.dtype}
        for weight in network.weights
    ]
    return File(described, buffers)


def variables_file(variables: Mapping[str, Any]) -> File:
    """Returns a numpy archive of `{name: tensor}`."""

    def buffers():
        buffer = io.BytesIO()
        np.savez(buffer, **{name: np.asarray(v) for name, v in variables.items()})
        return [memoryview(buffer.getvalue())]

    described = {
        name: {"shape": list(value.shape), "dtype": tf.as_dtype(value.dtype).name}
        for name, value in variables.items()
    }
    return File(described, buffers)


@dataclasses.dataclass
class Content:
    """The content of a checkpoint, which doesn't change while training continues.

    Attributes:
        state: JSON-compatible dict.
        backbone: the `File` of the backbone's weights.
        arrays: `{name: rows}`, each with `shape`, `dtype`, `local_range()` and
            `pieces(low, high)`: `TiledRows.stored` or `Rows`.
        training: the `File` of the values that are needed only to resume; None: no run
            can resume from the checkpoint.
        held: whether training continues while the content is written.
    """

    state: dict
    backbone: File
    arrays: dict[str, Any]
    training: File | None = None
    held: bool = False


def save(
    path: str,
    content: Content,
    group: Any = None,
    heartbeat: Callable[[], None] = lambda: None,
) -> int:
    """Writes a checkpoint folder; each worker writes its own rows.

    If the store can rename a folder atomically, the folder is written under a temporary
    name. Otherwise, writing the manifest last completes the checkpoint.

    Args:
        path: the folder; it must not exist.
        content: the `Content`.
        group: the `Group` of workers, all of which must call this function, or None in
            a single process.
        heartbeat: function to call after each file, from several threads.

    Returns:
        the number of bytes that all workers wrote.

    Raises:
        FileExistsError: `path` already exists; nothing is overwritten.
        OSError: the checkpoint could not be written, for example because the disk is
            full; the incomplete folder is removed. If one worker fails, all workers
            raise an error.
    """
    path, group = path.rstrip("/"), group or SingleWorker()
    begin = functools.partial(_begin, path) if group.is_chief else None
    target = agree(group, f"begin {path}", begin)[0]
    try:
        write = functools.partial(_write, target, content, group.is_chief, heartbeat)
        shares = agree(group, f"write {path}", write)
        finish = functools.partial(_finish, path, target, content, shares)
        agree(group, f"finish {path}", finish if group.is_chief else None)
    except BaseException:
        if group.is_chief:
            # The caller should see the first error.
            with contextlib.suppress(OSError):
                files.remove_tree(target)
        raise
    return sum(file["bytes"] for share in shares for file in share["files"].values())


def agree(
    group: Any, name: str, function: Callable | None, timeout_s: float = math.inf
) -> list:
    """Calls a function on every worker; returns the list of all workers' results.

    Args:
        group: the `Group` of the workers.
        name: what the function does; the same on all workers.
        function: the function, or None to do nothing on this worker.
        timeout_s: seconds to wait for the others.

    Raises:
        OSError, ValueError: the function raised this error on this worker.
        StorageError: the function raised an error on another worker.
    """
    value, problem, error = None, None, None
    try:
        value = function() if function else None
    except (OSError, ValueError) as caught:
        error, problem = caught, [getattr(caught, "errno", None), str(caught)]
    outcomes = group.gather(name, {"value": value, "problem": problem}, timeout_s)
    if error is not None:
        raise error
    for index, outcome in enumerate(outcomes):
        if outcome["problem"]:
            number, text = outcome["problem"]
            raise files.StorageError(f"worker {index}: {text}", number)
    return [outcome["value"] for outcome in outcomes]


def _begin(path):
    """Creates the folder to write to; returns its path."""
    outputs.require_absent(path)
    target = files.temporary_name(path) if files.atomic_rename(path) else path
    files.make_dirs(files.join(target, "rows"))
    return target


def _write(target, content, is_chief, heartbeat):
    """Writes this worker's share; returns its files and its parts of the arrays."""
    jobs, parts = {}, {}
    if is_chief:
        jobs[BACKBONE] = content.backbone.buffers
        if content.training:
            jobs[TRAINING] = content.training.buffers
    for name, array in content.arrays.items():
        if is_chief or array.local_range() != (0, array.shape[0]):
            parts[name] = _parts(name, array)
            for part in parts[name]:
                rows = part["first"], part["last"] + 1
                jobs[part["file"]] = functools.partial(npy_chunks, array, *rows)

    def write(name):
        entry = files.write(files.join(target, name), jobs[name])
        heartbeat()
        return entry

    threads = 1 if content.held and files.is_local(target) else THREADS
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        written = dict(zip(jobs, pool.map(write, jobs), strict=True))
    return {"files": written, "parts": parts}


def _parts(name, array):
    """Splits this process's rows of an array into files; returns their descriptions."""
    first, end = array.local_range()
    header = len(npy_header(array.shape, array.dtype))
    step = max(1, (FILE_BYTES - header) // row_size(array.shape, array.dtype))
    plain, parts = name.replace("/", "."), []
    for low in range(first, end, step):
        high = min(low + step, end)
        file = f"rows/{plain}-{low:010d}-{high:010d}.npy"
        parts.append({"file": file, "first": low, "last": high - 1})
    return parts


def npy_chunks(array: Any, low: int, high: int) -> Iterator[bytes | np.ndarray]:
    """Yields the contents of a numpy file with the rows `[low, high)` in chunks."""
    yield npy_header((high - low, *array.shape[1:]), array.dtype)
    for piece in array.pieces(low, high):
        yield np.ascontiguousarray(piece)


def _finish(path, target, content, shares):
    """Writes the manifest of all workers' files, which completes the checkpoint."""
    described = manifest.encode(_describe(content, shares))
    files.write(files.join(target, manifest.NAME), described)
    manifest.read(target)  # `extra` and logs come from users, and may be invalid.
    if target != path:
        files.rename(target, path)


def _describe(content, shares):
    arrays = {}
    for name, array in content.arrays.items():
        parts = [p for share in shares for p in share["parts"].get(name, [])]
        arrays[name] = {**packing.describe(array.shape, array.dtype), "parts": parts}
    training = {}
    if content.training:
        training = {"file": TRAINING, "variables": content.training.described}
    return {
        "format": manifest.FORMAT,
        "kind": "training" if content.training else "weights",
        "versions": versions.installed(),
        "state": content.state,
        "backbone": {"file": BACKBONE, "weights": content.backbone.described},
        "training": training,
        "arrays": arrays,
        "files": {name: file for s in shares for name, file in s["files"].items()},
    }
