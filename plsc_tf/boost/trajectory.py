"""The snapshots of a training: rows of a matrix that is never entirely in memory."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import h5py
import numpy as np

from plsc_tf.boost.pca import nothing
from plsc_tf.checkpoints import manifest, reader
from plsc_tf.checkpoints.rows import StoredRows
from plsc_tf.storage import files


class RangedFile(io.RawIOBase):
    """A file that h5py and numpy can read without copying it.

    Args:
        path: the file.
    """

    def __init__(self, path):
        super().__init__()
        self._path = path
        self._size = files.size(path)
        self._at = 0

    def readable(self):
        """Yes."""
        return True

    def seekable(self):
        """Yes."""
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        """Goes to a byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = base[whence] + offset
        return self._at

    def readinto(self, buffer):
        """Reads into a buffer; returns the bytes that it got."""
        stop = min(self._at + len(buffer), self._size)
        content = files.read(self._path, self._at, stop) if stop > self._at else b""
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


_NUMBER = re.compile(r"\d+|step_\d+")


class Snapshot:
    """One snapshot, whose numbers are read by their places in the vector.

    Args:
        path: of the checkpoint.
        layout: the `Layout`.

    Raises:
        DamagedCheckpointError: its files are not what was written.
        ValueError: it is of another model.
    """

    def __init__(self, path, layout):
        self.path = path
        content = manifest.read(path)
        self.step = content["state"]["global_step"]
        _compare(path, content, layout)
        arrays = [
            (piece, content["arrays"][piece.rows])
            for piece in layout.pieces
            if piece.rows
        ]
        names = [part["file"] for _, array in arrays for part in array["parts"]]
        reader.verify(path, content, [content["backbone"]["file"], *names])
        self._file = files.join(path, content["backbone"]["file"])
        with h5py.File(RangedFile(self._file), "r") as file:
            self._places = [
                (piece, *self._place(file, piece))
                for piece in layout.pieces
                if not piece.rows
            ]
        self._rows = [(piece, StoredRows(path, array)) for piece, array in arrays]

    def read(self, low, high):
        """The numbers `[low, high)` of the vector, float32."""
        numbers = np.empty(high - low, np.float32)
        for piece, dtype, offset in self._places:
            start, stop = max(low, piece.start), min(high, piece.stop)
            if start < stop:
                begin = offset + (start - piece.start) * dtype.itemsize
                end = begin + (stop - start) * dtype.itemsize
                raw = files.read(self._file, begin, end)
                numbers[start - low : stop - low] = np.frombuffer(raw, dtype)
        for piece, rows in self._rows:
            start, stop = max(low, piece.start), min(high, piece.stop)
            if start < stop:
                numbers[start - low : stop - low] = _part(
                    rows, start - piece.start, stop - piece.start
                )
        return numbers

    def _place(self, file, piece):
        """(type, offset of the first number) of a weight in the file."""
        data = file.get(piece.dataset)
        if data is None or data.shape != piece.shape:
            problem = f"no {piece.dataset} of shape {list(piece.shape)}"
            _refuse(self.path, f"{problem} ({piece.name} here)")
        offset = data.id.get_offset()
        if offset is None:
            raise ValueError(
                f"Snapshot {self.path}: {piece.name} is stored in chunks, and not as "
                "plsc_tf writes weights."
            )
        return data.dtype, offset


def _part(rows, low, high):
    """The numbers `[low, high)` of rows that are read whole."""
    width = int(np.prod(rows.shape[1:], dtype=np.int64))
    first, end = low // width, -(-high // width)
    whole = rows.read(first, end).reshape(-1)
    return whole[low - first * width : high - first * width]


def _compare(path, content, layout):
    """Raises ValueError for a snapshot of another model."""
    stored = content["backbone"]["weights"]
    if len(stored) != len(layout.weights):
        _refuse(path, f"{len(stored)} weights, {len(layout.weights)} here")
    pairs = [
        (described["shape"], *here)
        for described, here in zip(stored, layout.weights, strict=True)
    ]
    for piece in (piece for piece in layout.pieces if piece.rows):
        if piece.rows not in content["arrays"]:
            _refuse(path, "no class weights, which dim_reduce_scope=all needs")
        shape = content["arrays"][piece.rows]["shape"]
        pairs.append((shape, piece.name, piece.shape))
    for shape, name, here in pairs:
        if tuple(shape) != here:
            _refuse(path, f"{name} of shape {list(shape)}, {list(here)} here")


def _refuse(path, problem):
    raise ValueError(
        f"Snapshot {path} is not of this model: it has {problem}. Use the model_name, "
        "emb_size, num_classes and dim_reduce_scope of stage 1."
    )


def open_folder(
    folder: str, layout, components: int, heartbeat: Callable = nothing
) -> list[Snapshot]:
    """All snapshots of a folder, oldest first, each checked.

    Args:
        folder: of the snapshots (MindSpore: weight_load_dir).
        layout: the `Layout` of the model.
        components: number of principal components.
        heartbeat: function that is called after each.

    Returns:
        list of `Snapshot`.

    Raises:
        OSError: the folder does not exist.
        ValueError: too few snapshots, or some of another model.
    """
    if not files.is_dir(folder):
        is_file = files.exists(folder)
        error = NotADirectoryError if is_file else FileNotFoundError
        raise error(
            f"weight_load_dir '{folder}' {'is a file' if is_file else 'does not exist'}"
            ": expected the folder of stage 1's snapshots, model_save_dir/snapshots "
            "unless snapshot_dir named it."
        )
    names = [name for name in files.list_dir(folder) if _NUMBER.fullmatch(name)]
    if len(names) <= components:
        raise ValueError(
            f"n_component={components} dimensions need at least {components + 1} "
            f"snapshots. Received: weight_load_dir='{folder}' with {len(names)}. Keep "
            "more of them in stage 1 (snapshots_per_epoch, snapshot_max), or lower "
            "n_component."
        )
    snapshots = []
    for name in names:
        snapshots.append(Snapshot(files.join(folder, name), layout))
        heartbeat()
    return sorted(snapshots, key=lambda snapshot: snapshot.step)
