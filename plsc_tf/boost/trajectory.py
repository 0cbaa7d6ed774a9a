"""The snapshots of a training: rows of a matrix that is never entirely in memory."""

import dataclasses
import re
from collections.abc import Callable

import h5py
import numpy as np

from plsc_tf.boost.ranged_file import RangedFile
from plsc_tf.checkpoints import manifest, reader
from plsc_tf.checkpoints.rows import StoredRows
from plsc_tf.storage import files

_NUMBER = re.compile(r"\d+|step_\d+")


@dataclasses.dataclass(frozen=True)
class _Stretch:
    """Consecutive numbers of a file."""

    start: int
    stop: int
    dtype: np.dtype
    offset: int


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
        self._stretches = self._index(layout)
        self._rows = [(piece, StoredRows(path, array)) for piece, array in arrays]

    def read(self, low, high):
        """The numbers `[low, high)` of the vector, float32."""
        numbers = np.empty(high - low, np.float32)
        for one in self._stretches:
            start, stop = max(low, one.start), min(high, one.stop)
            if start < stop:
                size = one.dtype.itemsize
                begin = one.offset + (start - one.start) * size
                raw = files.read(self._file, begin, begin + (stop - start) * size)
                numbers[start - low : stop - low] = np.frombuffer(raw, one.dtype)
        for piece, rows in self._rows:
            start, stop = max(low, piece.start), min(high, piece.stop)
            if start < stop:
                numbers[start - low : stop - low] = _part(
                    rows, start - piece.start, stop - piece.start
                )
        return numbers

    def _index(self, layout):
        stretches = []
        with h5py.File(RangedFile(self._file), "r") as file:
            for piece in layout.pieces:
                if piece.rows:
                    continue
                data = file.get(piece.dataset)
                if data is None or data.shape != piece.shape:
                    shape = list(piece.shape)
                    _refuse(
                        self.path,
                        f"no {piece.dataset} of shape {shape} ({piece.name} here)",
                    )
                offset = data.id.get_offset()
                if offset is None:
                    raise ValueError(
                        f"Snapshot {self.path}: {piece.name} is stored in chunks, and "
                        "not as plsc_tf writes weights."
                    )
                if stretches and stretches[-1].dtype == data.dtype:
                    last = stretches[-1]
                    end = last.offset + (last.stop - last.start) * data.dtype.itemsize
                    if end == offset:
                        stretches[-1] = dataclasses.replace(last, stop=piece.stop)
                        continue
                stretches.append(_Stretch(piece.start, piece.stop, data.dtype, offset))
        return stretches


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
    expected = [
        (described["shape"], name, shape)
        for described, (name, shape) in zip(stored, layout.weights, strict=True)
    ]
    for piece in layout.pieces:
        if not piece.rows:
            continue
        if piece.rows not in content["arrays"]:
            _refuse(path, "no class weights, which dim_reduce_scope=all needs")
        shape = content["arrays"][piece.rows]["shape"]
        expected.append((shape, piece.name, piece.shape))
    for shape, name, here in expected:
        if tuple(shape) != here:
            _refuse(path, f"{name} of shape {list(shape)}, {list(here)} here")


def _refuse(path, problem):
    raise ValueError(
        f"Snapshot {path} is not of this model: it has {problem}. Use the model_name, "
        "emb_size, num_classes and dim_reduce_scope of stage 1."
    )


def open_folder(
    folder: str, layout, components: int, heartbeat: Callable | None = None
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
        problem = "is a file" if is_file else "does not exist"
        raise (NotADirectoryError if is_file else FileNotFoundError)(
            f"weight_load_dir '{folder}' {problem}: expected the folder of stage "
            "1's snapshots, model_save_dir/snapshots unless snapshot_dir named it."
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
        if heartbeat is not None:
            heartbeat()
    return sorted(snapshots, key=lambda snapshot: snapshot.step)
